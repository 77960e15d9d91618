// Start of and connection to a daemon, with a stub in its place.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { chmod, mkdir, readFile, stat } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { resolveHome } from "@forkd/runtime";
import { patience } from "../../../tests/helpers/patience.ts";
import { until } from "../../../tests/helpers/until.ts";
import { connect, connectOrStart } from "../src/daemon/connect.ts";
import { paths } from "../src/daemon/paths.ts";
import { forkd, temporaryFolder } from "./helpers.ts";

import type { Cli } from "../src/cli.ts";

const STUB = join(import.meta.dirname, "fixtures", "stub-daemon.ts");

type Seen = { args: string[]; token: string | null; url: string | null; password: string | null; hub: string | null; pid: number };

function cli(over: Partial<Cli> = {}): Cli {
  return {
    signal: new AbortController().signal,
    json: false,
    exitCode: 0,
    daemonUrl: undefined,
    daemonToken: undefined,
    project: undefined,
    autostart: true,
    ...over,
  };
}

/** A run folder and its environment, for the duration of the test */
async function place(env: Record<string, string> = {}): Promise<AsyncDisposable & { run: string; seen: () => Promise<Seen> }> {
  const folder = await temporaryFolder();
  const run = join(folder.path, "run");
  const before = { ...process.env };
  Object.assign(process.env, { FORKD_RUN: run, ...env });
  const seen = async (): Promise<Seen> => JSON.parse(await readFile(join(run, "stub.json"), "utf8")) as Seen;
  return {
    run,
    seen,
    [Symbol.asyncDispose]: async () => {
      for (const name of ["FORKD_RUN", ...Object.keys(env)]) {
        if (before[name] === undefined) delete process.env[name];
        else process.env[name] = before[name];
      }
      try {
        process.kill((await seen()).pid, "SIGTERM");
      } catch (error) {
        if (!["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
      }
      await folder[Symbol.asyncDispose]();
    },
  };
}

/** Output of the daemon so far; "" before it was started */
const logOf = (run: string): string => (existsSync(join(run, "daemon.log")) ? readFileSync(join(run, "daemon.log"), "utf8") : "");

test("the paths are those of the daemon", () => {
  for (const env of [{}, { FORKD_HOME: "/h", FORKD_RUN: "/r" }, { XDG_RUNTIME_DIR: "/x", XDG_DATA_HOME: "/d" }]) {
    const home = resolveHome(env);
    const own = paths(env);
    assert.deepEqual([own.home, own.run, own.images, own.snapshots], [home.root, home.run, home.images, home.snapshots]);
  }
});

test("a daemon that does not run is started, without a port and without secrets, and used", async () => {
  const secrets = { FORKD_TOKEN: "secret", FORKD_REGISTRY_PASSWORD: "secret", FORKD_HUB_URL: "https://h.example/r.json?secret" };
  await using here = await place({ ...secrets, FORKD_URL: "http://elsewhere" });
  const { controller, started } = await connectOrStart(cli(), { program: STUB });
  assert.equal(started, true);
  assert.deepEqual(await controller.listSandboxes(), []);
  const seen = await here.seen();
  assert.deepEqual(seen.args, ["--bind", "none", "--exit-when-idle-secs", "600"]);
  assert.deepEqual([seen.token, seen.url, seen.password, seen.hub], [null, null, null, null]);
  assert.equal((await stat(here.run)).mode & 0o777, 0o700);
  assert.equal((await stat(join(here.run, "daemon.log"))).mode & 0o777, 0o600);
  const again = await connectOrStart(cli(), { program: "/nonexistent" });
  assert.equal(again.started, false);
});

test("its own error is passed on, with code and hint", async () => {
  await using here = await place({ STUB_MODE: "refuse" });
  await assert.rejects(connect(cli(), { program: STUB }), { message: "Cannot use bind = 1.", code: "BAD_CONFIG", hint: "Correct it." });
  await assert.rejects(here.seen(), { code: "ENOENT" });
});

test("the error of a daemon that ends silently has the end of its log", async () => {
  await using here = await place({ STUB_MODE: "crash" });
  const log = new RegExp(`Its log is ${here.run}/daemon\\.log`);
  await assert.rejects(connect(cli(), { program: STUB }), { code: "DAEMON_FAILED", message: /first line\nTypeError: it broke/, hint: log });
});

test("the loser of two that start at once waits for the winner's daemon", async () => {
  await using here = await place({ STUB_MODE: "rival" });
  const winner = createServer((_request, response) => response.end("[]"));
  const connecting = connectOrStart(cli(), { program: STUB, rivalMs: patience() });
  const loser = join(here.run, "loser.pid");
  await until(() => existsSync(loser) && readFileSync(loser, "utf8") !== "" && !existsSync(`/proc/${readFileSync(loser, "utf8")}`));
  winner.listen(join(here.run, "forkd.sock"));
  const { controller, started } = await connecting;
  assert.equal(started, false);
  assert.deepEqual(await controller.listSandboxes(), []);
  winner.closeAllConnections();
  winner.close();
});

test("when the winner never answers, the error is that of the loser", async () => {
  await using here = await place({ STUB_MODE: "rival" });
  await assert.rejects(connect(cli(), { program: STUB, rivalMs: 200 }), { code: "DAEMON_RUNNING" });
  await assert.rejects(here.seen(), { code: "ENOENT" });
});

test("no daemon is started with --no-autostart, or for an address", async () => {
  await using here = await place();
  await assert.rejects(connect(cli({ autostart: false }), { program: STUB }), { code: "DAEMON_UNREACHABLE" });
  const remote = await connect(cli({ daemonUrl: "http://127.0.0.1:9" }), { program: STUB });
  await assert.rejects(remote.listSandboxes(), { code: "DAEMON_UNREACHABLE" });
  await assert.rejects(here.seen(), { code: "ENOENT" });
  const { code, stderr } = await forkd(["ls", "--no-autostart"], { FORKD_RUN: here.run, FORKD_NO_AUTOSTART: "" });
  assert.equal(code, 1);
  assert.match(stderr, /^forkd: No daemon answers at .*\n.*\[DAEMON_UNREACHABLE\]\n$/);
});

test("Ctrl-C while it starts ends it", async () => {
  await using here = await place();
  const controller = new AbortController();
  const connecting = connect(cli({ signal: controller.signal }), { program: join(import.meta.dirname, "fixtures", "waiting-command.ts") });
  await until(() => logOf(here.run) === "working\n");
  controller.abort(new Error("stop"));
  await assert.rejects(connecting, /stop/);
  await until(() => logOf(here.run).includes("cleaned up"));
});

test("a run folder that others can write is refused: another user could listen there", async () => {
  await using here = await place();
  await mkdir(here.run);
  await chmod(here.run, 0o777);
  await assert.rejects(connect(cli(), { program: STUB }), { code: "HOME_UNSAFE" });
});
