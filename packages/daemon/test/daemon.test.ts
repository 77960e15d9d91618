// The daemon from start to shutdown, without VMs.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, rename, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { resolveConfig } from "../src/config.ts";
import { startDaemon } from "../src/daemon.ts";
import { resolveHome } from "@forkd/runtime/home";
import { fakeManager } from "./helpers/fake-manager.ts";
import { open, readAll, silent, tempDir } from "./helpers/serve.ts";
import type { AddressInfo } from "node:net";
import type { Readable } from "node:stream";
import type { TestContext } from "node:test";
import type { Daemon } from "../src/daemon.ts";
import type { Home } from "@forkd/runtime/home";
import type { ManagerApi } from "../src/service/manager.ts";

type Options = Record<string, string | boolean>;
type Start = { options?: Options; manager?: ManagerApi; idleSince?: number; stopped?: unknown[]; home?: Home };

async function homeOf(t: TestContext): Promise<Home> {
  const dir = await tempDir(t);
  return resolveHome({ FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run") });
}

async function start(t: TestContext, given: Start = {}): Promise<Daemon & { home: Home }> {
  const home = given.home ?? (await homeOf(t));
  const config = await resolveConfig({ options: { bind: "127.0.0.1:0", ...given.options }, env: {}, home });
  const handle = Object.assign(given.manager ?? fakeManager(), {
    idleSince: given.idleSince ?? null,
    gauges: async () => ({
      sandboxes: 0,
      guestBytes: 0,
      snapshots: 0,
      branchesInFlight: 0,
      poolWaiting: 0,
      poolSize: 0,
      privateBytes: new Map<string, number>(),
    }),
    servesAt: () => undefined,
    stop: async (opts: unknown) => void given.stopped?.push(opts),
  });
  const daemon = await startDaemon({ config, home, log: silent, startManager: async () => handle });
  t.after(() => daemon.stop({ killSandboxes: false }));
  return Object.assign(daemon, { home });
}

async function ask(daemon: Daemon, path: string, method = "GET", body?: object): Promise<{ status: number; text: string }> {
  const headers = body ? { "content-type": "application/json" } : {};
  const response = await open({ socketPath: daemon.socket, path, method, headers, agent: false }, body);
  return { status: response.statusCode ?? 0, text: await readAll(response) };
}

async function isThere(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

test("a daemon serves both transports, restricts its files to its user and leaves no socket", async (t) => {
  const stopped: unknown[] = [];
  const daemon = await start(t, { stopped });
  assert.equal((await ask(daemon, "/version")).status, 200);
  assert.match(String(daemon.bind), /^127\.0\.0\.1:[1-9]\d*$/);
  const tcp = await open({ host: "127.0.0.1", port: Number(daemon.bind?.split(":")[1]), path: "/healthz", agent: false });
  assert.equal(tcp.statusCode, 200);
  tcp.resume();
  assert.equal((await stat(daemon.socket)).mode & 0o777, 0o600);
  for (const name of ["state.db", "state.db-wal", "audit.log"]) {
    assert.equal((await stat(join(daemon.home.root, name))).mode & 0o777, 0o600, name);
  }
  await daemon.stop({ killSandboxes: true });
  await daemon.done;
  assert.equal(await isThere(daemon.socket), false);
  assert.deepEqual(stopped, [{ killSandboxes: true }]);
  assert.match(await readFile(join(daemon.home.root, "audit.log"), "utf8"), /"path":"\/version"/);
});

test("a daemon without TCP opens one port for browsers with the first link, and closes it when it stops", async (t) => {
  const daemon = await start(t, { options: { bind: "none" } });
  assert.equal(daemon.bind, null);
  const links = await Promise.all([1, 2].map(async () => ask(daemon, "/v1/ui/links", "POST", {})));
  const urls = links.map(({ status, text }) => (assert.equal(status, 201, text), (JSON.parse(text) as { url: string }).url));
  const ports = urls.map((url) => /^http:\/\/forkd\.localhost:(\d+)\/ui\/#login=/.exec(url)?.[1]);
  assert.equal(new Set(ports).size, 1);
  const at = { host: "127.0.0.1", port: Number(ports[0]), agent: false };
  const refused = await open({ ...at, path: "/v1/sandboxes" });
  assert.equal(refused.statusCode, 401, "the port needs a token or a session, as any other");
  refused.resume();
  await daemon.stop({ killSandboxes: false });
  await assert.rejects(open({ ...at, path: "/healthz" }), { code: "ECONNREFUSED" });
});

test("a second daemon of the same home does not start, and the first one continues", async (t) => {
  const first = await start(t);
  await assert.rejects(start(t, { home: first.home }), { code: "DAEMON_RUNNING" });
  assert.equal((await ask(first, "/healthz")).status, 200);
});

test("a socket left by an earlier daemon does not prevent the start", async (t) => {
  const home = await homeOf(t);
  const first = await start(t, { home });
  await first.stop({ killSandboxes: false });
  await writeFile(first.socket, "");
  const second = await start(t, { home });
  assert.equal((await ask(second, "/healthz")).status, 200);
});

test("an address in use is reported, and everything is released", async (t) => {
  const other = createServer().listen(0, "127.0.0.1");
  t.after(() => other.close());
  await once(other, "listening");
  const { port } = other.address() as AddressInfo;
  const home = await homeOf(t);
  const stopped: unknown[] = [];
  await assert.rejects(start(t, { home, stopped, options: { bind: `127.0.0.1:${port}` } }), {
    code: "DAEMON_FAILED",
    message: /another program/,
  });
  assert.equal(stopped.length, 1, "the manager was stopped");
  assert.equal(await isThere(join(home.run, "forkd.sock")), false);
  assert.equal((await ask(await start(t, { home }), "/healthz")).status, 200);
});

test("stopping answers requests in flight first and accepts no new ones", async (t) => {
  const begun = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const order: string[] = [];
  const manager = fakeManager({
    execution: {
      ping: async () => {
        begun.resolve();
        await release.promise;
        order.push("answered");
        return { pong: true, ms: 1, kernels: [] };
      },
    },
  });
  const daemon = await start(t, { manager });
  const inFlight = ask(daemon, "/v1/sandboxes/a/ping", "POST");
  await begun.promise;
  assert.equal((await ask(daemon, "/v1/stop", "POST", {})).status, 202);
  const done = daemon.done.then(() => order.push("stopped"));
  assert.equal((await ask(daemon, "/readyz")).status, 503);
  assert.match((await ask(daemon, "/v1/sandboxes/a/ping", "POST")).text, /STOPPING/);
  release.resolve();
  assert.equal((await inFlight).status, 200);
  await done;
  assert.deepEqual(order, ["answered", "stopped"]);
});

test("a stop that is only for an idle daemon is refused while the daemon is in use", async (t) => {
  const begun = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const manager = fakeManager({
    execution: {
      ping: async () => {
        begun.resolve();
        await release.promise;
        return { pong: true, ms: 1, kernels: [] };
      },
    },
  });
  const daemon = await start(t, { manager, idleSince: 0 });
  const other = ask(daemon, "/v1/sandboxes/a/ping", "POST");
  await begun.promise;
  const refused = await ask(daemon, "/v1/stop", "POST", { if_idle: true });
  assert.equal(refused.status, 409);
  assert.match(refused.text, /IN_USE/);
  assert.equal(daemon.stopping.aborted, false);
  release.resolve();
  await other;
  assert.equal((await ask(daemon, "/v1/stop", "POST", { if_idle: true })).status, 202);
  assert.equal(daemon.stopping.aborted, true);
  await daemon.done;
});

test("a stop that is only for an idle daemon is refused while there are sandboxes", async (t) => {
  const daemon = await start(t);
  const refused = await ask(daemon, "/v1/stop", "POST", { if_idle: true });
  assert.deepEqual([refused.status, daemon.stopping.aborted], [409, false]);
  assert.equal((await ask(daemon, "/v1/stop", "POST", { if_idle: false })).status, 202);
  await daemon.done;
});

test("requests that do not end in time are cancelled", async (t) => {
  const begun = Promise.withResolvers<void>();
  const manager = fakeManager({
    execution: {
      exec: async (_id, _request, { signal }) => {
        begun.resolve();
        await once(signal, "abort");
        throw signal.reason as Error;
      },
    },
  });
  const daemon = await start(t, { manager, options: { "drain-secs": "0" } });
  const inFlight = ask(daemon, "/v1/sandboxes/a/exec", "POST", { args: ["x"] });
  await begun.promise;
  await daemon.stop({ killSandboxes: false });
  assert.match((await inFlight).text, /STOPPING/);
});

test("reloading reopens the audit log and rereads the token, unless the file is invalid", async (t) => {
  const home = await homeOf(t);
  const tokenFile = join(await tempDir(t), "token");
  await writeFile(tokenFile, "0123456789abcdef-one", { mode: 0o600 });
  const daemon = await start(t, { home, options: { "token-file": tokenFile } });
  const port = Number(daemon.bind?.split(":")[1]);
  const withToken = async (token: string): Promise<number | undefined> => {
    const response = await open({ host: "127.0.0.1", port, path: "/version", headers: { authorization: `Bearer ${token}` }, agent: false });
    response.resume();
    return response.statusCode;
  };
  assert.equal(await withToken("0123456789abcdef-one"), 200);
  const headers = { authorization: "Bearer 0123456789abcdef-one" };
  const watching = await open({ host: "127.0.0.1", port, path: "/v1/events", headers, agent: false });
  watching.resume();
  await daemon.reload();
  assert.equal(await withToken("0123456789abcdef-one"), 200);
  assert.equal(watching.complete, false, "the same token ends nothing");
  await writeFile(tokenFile, "0123456789abcdef-two");
  await rename(join(home.root, "audit.log"), join(home.root, "audit.log.1"));
  await daemon.reload();
  assert.equal(await withToken("0123456789abcdef-one"), 401);
  assert.equal(await withToken("0123456789abcdef-two"), 200);
  if (!watching.complete) await once(watching, "end");
  await writeFile(tokenFile, "short");
  await daemon.reload();
  assert.equal(await withToken("0123456789abcdef-two"), 200);
  await daemon.stop({ killSandboxes: false });
  assert.match(await readFile(join(home.root, "audit.log"), "utf8"), /"path":"\/version"/);
});

test("a bad token file or certificate prevents the start", async (t) => {
  const dir = await tempDir(t);
  await writeFile(join(dir, "token"), "CHANGE_ME-0123456789abcdef", { mode: 0o600 });
  await assert.rejects(start(t, { options: { "token-file": join(dir, "token") } }), { code: "WEAK_TOKEN" });
  await assert.rejects(start(t, { options: { "tls-cert": join(dir, "c"), "tls-key": join(dir, "k") } }), { code: "BAD_CONFIG" });
  await writeFile(join(dir, "c"), "no certificate");
  await assert.rejects(start(t, { options: { "tls-cert": join(dir, "c"), "tls-key": join(dir, "c") } }), { code: "BAD_CONFIG" });
});

test("a daemon without use ends by itself", async (t) => {
  const daemon = await start(t, { options: { "exit-when-idle-secs": "1", bind: "none" }, idleSince: 0 });
  await daemon.done;
  assert.equal(await isThere(daemon.socket), false);
});

test("the process reports to its starter why it could not start", async (t) => {
  const dir = await tempDir(t);
  const env = { ...process.env, FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run"), FORKD_READY_FD: "3" };
  for (const [args, pattern] of [
    [["--bind", "nonsense"], /bind.*nonsense/],
    [["--bogus"], /bogus/],
  ] as const) {
    const bin = join(import.meta.dirname, "..", "bin", "forkd-daemon.mjs");
    const child = spawn(process.execPath, [bin, ...args], { env, stdio: ["ignore", "ignore", "ignore", "pipe"] });
    const told = Array.fromAsync(child.stdio[3] as Readable);
    const [code] = (await once(child, "exit")) as [number];
    const line = JSON.parse((await told).join("")) as { error: string; code: string };
    assert.equal(code, 1);
    assert.equal(line.code, "BAD_CONFIG");
    assert.match(line.error, pattern);
  }
});

test("SIGTERM with leave_secs gives gateways that time, and requests are served meanwhile", async (t) => {
  const key = join(await tempDir(t), "key");
  await writeFile(key, "0123456789abcdef0123456789abcdef", { mode: 0o600 });
  for (const [options, withinMs] of [
    [{ "leave-secs": "60", "cluster-key-file": key }, 60_000],
    // there are no gateways to wait for
    [{ "leave-secs": "60" }, 0],
    [{ "cluster-key-file": key }, null],
  ] as const) {
    const moved = Promise.withResolvers<void>();
    const asked: number[] = [];
    const stopped: unknown[] = [];
    const leave = async (opts: { withinMs: number }): Promise<void> => {
      asked.push(opts.withinMs);
      await moved.promise;
    };
    const daemon = await start(t, { options: { ...options }, manager: fakeManager({ leave }), stopped });
    const over = daemon.leave();
    if (withinMs !== null) assert.equal((await ask(daemon, "/healthz")).status, 200);
    assert.equal(daemon.stopping.aborted, withinMs === null);
    moved.resolve();
    await over;
    assert.deepEqual(asked, withinMs === null ? [] : [withinMs]);
    assert.deepEqual(stopped, [{ killSandboxes: false }]);
  }
});
