// Servers inside sandboxes, reached through the proxy, by a raw connection and from the CLI.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { Agent, request, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { buffer, text } from "node:stream/consumers";
import { after, before, describe, it } from "node:test";
import { Controller, Sandbox } from "forkd";
import { rounds } from "../helpers/all.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { residentMemory } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { PYTHON_SERVERS, SOURCE_BYTES } from "../helpers/port-servers.ts";
import { until } from "../helpers/until.ts";

const MIB = 1024 * 1024;
/**
 * Allowance for uncollected garbage, which depends on the machine's load. A daemon that buffered the transfer would
 * grow by twice as much
 */
const ROOM = 75 * MIB;
const FORKD = resolve(import.meta.dirname, "..", "..", "forkd");

type Told = { method: string; path: string; headers: [string, string][]; body: string };

describe("servers in a sandbox", () => {
  let daemon: TestDaemon;
  let sandbox: Sandbox;
  let token: string;
  let remote: Sandbox;

  before(async () => {
    daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
    await daemon.makePython();
    sandbox = await Sandbox.create("python", { controller: daemon.controller });
    await sandbox.eval(PYTHON_SERVERS, { timeoutSecs: patience() / 1000 });
    token = (await daemon.controller.createToken("ci")).token;
    const controller = new Controller({ url: `http://${daemon.bind}`, token });
    remote = new Sandbox(controller, sandbox.info);
  });

  after(async () => daemon[Symbol.asyncDispose]());

  /** A request by host name over TCP, with the given headers */
  async function visit(path: string, headers: Record<string, string>, port = 8000, id = sandbox.id): Promise<IncomingMessage> {
    const [host = "", tcp] = (daemon.bind ?? "").split(":");
    const asked = request({ host, port: tcp, path, agent: false, headers: { host: `${port}-${id}.localhost:${tcp}`, ...headers } });
    return ((await once(asked.end(), "response")) as [IncomingMessage])[0];
  }

  it("are listed with their addresses and their processes", async () => {
    const ports = await sandbox.ports.list();
    const python = ports.filter(({ process }) => process?.name.startsWith("python"));
    for (const [port, address, family] of [
      [8000, "0.0.0.0", "ipv4"],
      [8001, "127.0.0.1", "ipv4"],
      [8006, "::1", "ipv6"],
    ] as const)
      assert.ok(
        python.some((known) => known.port === port && known.address === address && known.family === family),
        `${port}: ${JSON.stringify(ports)}`,
      );
  });

  it("are reached over the socket and over TCP, at any address of the guest", async () => {
    for (const from of [sandbox, remote]) {
      for (const port of [8000, 8006]) {
        const response = await from.ports.fetch(port, "/a%20b?x=1", { method: "PUT", body: "tea", headers: { "x-own": "yes" } });
        const { method, path, body, headers } = (await response.json()) as Told;
        assert.deepEqual([method, path, body], ["PUT", "/a%20b?x=1", "tea"]);
        assert.equal(new Map(headers.map(([name, value]) => [name.toLowerCase(), value])).get("host"), `localhost:${port}`);
      }
    }
  });

  it("get an app's Authorization and never a credential of forkd", async () => {
    const { token: preview } = await sandbox.ports.preview(8000);
    const answers = [
      await remote.ports.fetch(8000, "/", { headers: { authorization: "Basic app" } }),
      await fetch(`http://${daemon.bind}/v1/sandboxes/${sandbox.id}/proxy/8000/`, { headers: { authorization: `Bearer ${token}` } }),
      await visit("/", { "x-forkd-token": token, authorization: "Basic app" }),
      await visit("/", { cookie: `forkd_preview=${preview}; own=1`, authorization: "Basic app" }),
    ];
    for (const [at, answer] of answers.entries()) {
      const said = await (answer instanceof Response ? answer.text() : text(answer));
      const { headers } = JSON.parse(said) as Told;
      assert.doesNotMatch(said, /fk[dp]_|x-forkd|forkd_preview/i);
      assert.equal(
        new Map(headers.map(([name, value]) => [name.toLowerCase(), value])).get("authorization"),
        at === 1 ? undefined : "Basic app",
      );
    }
  });

  it("send events without delay", async () => {
    const response = await remote.ports.fetch(8000, "/events");
    assert.equal(response.headers.get("content-type"), "text/event-stream");
    const reader = response.body?.getReader() ?? assert.fail("there is no body");
    // the server sends the second event only after the first was read
    assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), "data: 1\n\n");
    await sandbox.eval("let_go.set()");
    assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), "data: 2\n\n");
    assert.equal((await reader.read()).done, true);
    await sandbox.eval("let_go.clear()");
  });

  it("receive and send much while the daemon's memory stays constant", async (context) => {
    const piece = new Uint8Array(MIB);
    async function* content(): AsyncGenerator<Uint8Array> {
      for (let sent = 0; sent < SOURCE_BYTES; sent += piece.length) yield piece;
    }
    const bothWays = async (): Promise<void> => {
      const up = await remote.ports.fetch(8000, "/sink", { method: "POST", body: content() });
      assert.equal(await up.text(), String(SOURCE_BYTES));
      const down = await remote.ports.fetch(8000, "/source");
      let received = 0;
      for await (const chunk of down.body as unknown as AsyncIterable<Uint8Array>) received += chunk.length;
      assert.equal(received, SOURCE_BYTES);
    };
    // warm up: the first transfer allocates memory that later ones reuse
    await bothWays();
    const before = residentMemory(daemon.pid).peakBytes;
    await bothWays();
    const after = residentMemory(daemon.pid).peakBytes;
    context.diagnostic(`peak of the daemon: ${Math.round(before / MIB)} MiB before, ${Math.round(after / MIB)} MiB after`);
    assert.ok(after - before < ROOM, `${after - before} bytes more`);
  });

  it("wait for a client that does not read", async () => {
    const response = await visit("/source", { "x-forkd-token": token });
    assert.equal(response.statusCode, 200);
    const sent = async (): Promise<number> => Number((await sandbox.eval("sent")).value);
    let last = -1;
    // until no more bytes are sent
    await until(async () => last === (last = await sent()) && last > 0);
    assert.ok(last < 16 * MIB, `${last} bytes were sent to a client that does not read`);
    response.destroy();
  });

  it("keep their connections for later requests", async () => {
    const count = async (): Promise<number> => Number(await (await sandbox.ports.fetch(8000, "/connections")).text());
    const before = await count();
    for (let i = 0; i < 20; i++) await (await sandbox.ports.fetch(8000, "/", i % 2 === 0 ? {} : { method: "POST", body: "x" })).text();
    assert.equal((await count()) - before <= 1, true);
  });

  it("answer concurrent requests without an error", async () => {
    for (const clients of [1, 8, 32]) {
      const agent = new Agent({ keepAlive: true, maxSockets: clients });
      const total = rounds(96, 320);
      const statuses = await Promise.all(
        Array.from({ length: clients }, async () => {
          const seen: (number | undefined)[] = [];
          for (let i = 0; i < total / clients; i++) {
            const asked = request({ agent, socketPath: daemon.socket, path: `/v1/sandboxes/${sandbox.id}/proxy/8000/connections` });
            const [response] = (await once(asked.end(), "response")) as [IncomingMessage];
            await buffer(response);
            seen.push(response.statusCode);
          }
          return seen;
        }),
      );
      assert.deepEqual(new Set(statuses.flat()), new Set([200]));
      agent.destroy();
    }
  });

  it("that do not speak HTTP get an error that names the server", async () => {
    for (const port of [8010, 8011, 8012, 8014]) {
      const failure = await sandbox.ports.fetch(port, "/").then(
        () => assert.fail(`port ${port} answered`),
        (error: unknown) => error as { code: string; status: number },
      );
      assert.deepEqual([failure.code, failure.status], ["BAD_GATEWAY", 502], `port ${port}`);
    }
    const broken = await sandbox.ports.fetch(8013, "/");
    assert.equal(broken.status, 200);
    await assert.rejects(broken.text());
    assert.equal((await sandbox.ports.fetch(8000, "/")).status, 200);
  });

  it("that do not exist: PORT_CLOSED, for programs and browsers", async () => {
    await assert.rejects(sandbox.ports.fetch(9999, "/"), { code: "PORT_CLOSED" });
    await assert.rejects(sandbox.ports.connect(9999), { code: "PORT_CLOSED" });
    const page = await visit("/", { "x-forkd-token": token, accept: "text/html" }, 9999);
    assert.equal(page.statusCode, 502);
    assert.match(await text(page), /<h1>Cannot connect to port 9999 of the guest/);
  });

  it("cannot redirect a client with a token elsewhere, nor set cookies for others", async () => {
    for (const [to, location, elsewhere] of [
      ["/v1/stop", `/v1/sandboxes/${sandbox.id}/proxy/8000/v1/stop`, null],
      ["../../../../../stop", `/v1/sandboxes/${sandbox.id}/proxy/8000/stop`, null],
      [`http://${daemon.bind}/v1/stop`, null, `http://${daemon.bind}/v1/stop`],
    ] as const) {
      const response = await remote.ports.fetch(8000, `/redirect?to=${to}`, { method: "POST", body: "x" });
      assert.equal(response.status, 307);
      assert.deepEqual([response.headers.get("location"), response.headers.get("x-forkd-location")], [location, elsewhere]);
    }
    const cookies = (await remote.ports.fetch(8000, "/cookie")).headers.getSetCookie();
    assert.deepEqual(cookies, [`theme=dark; Path=/v1/sandboxes/${sandbox.id}/proxy/8000`]);
    assert.deepEqual((await visit("/cookie", { "x-forkd-token": token })).headers["set-cookie"], ["theme=dark; Path=/"]);
  });

  it("of two sandboxes are separate: a link to one opens nothing of the other", async () => {
    const [other = assert.fail()] = await sandbox.fork(1);
    try {
      const { token: preview } = await sandbox.ports.preview(8000);
      const cookie = `forkd_preview=${preview}`;
      assert.equal((await visit("/", { cookie })).statusCode, 200);
      assert.equal((await visit("/", { cookie }, 8000, other.id)).statusCode, 401);
      assert.equal((await visit("/", { cookie }, 8001)).statusCode, 401);
      // the fork has its own copies of the servers
      assert.equal((await other.ports.fetch(8000, "/connections")).status, 200);
      await other.kill();
      assert.equal((await visit("/", { "x-forkd-token": token }, 8000, other.id)).statusCode, 404);
    } finally {
      await other.kill();
    }
  });

  it("of a paused or ended sandbox are unavailable", async () => {
    const [other = assert.fail()] = await sandbox.fork(1);
    await other.pause();
    await assert.rejects(other.ports.fetch(8000, "/"), { code: "SANDBOX_PAUSED" });
    await other.resume();
    const events = await other.ports.fetch(8000, "/events");
    const ended = text(Readable.fromWeb(events.body as never));
    await Promise.all([assert.rejects(ended), other.kill()]);
    await assert.rejects(other.ports.fetch(8000, "/"), { code: "NOT_FOUND" });
  });

  it("accept bare connections, each direction of which closes separately", async () => {
    const content = Buffer.alloc(4 * MIB, "abcdefg");
    for (const from of [sandbox, remote]) {
      const connection = await from.ports.connect(8001);
      connection.end(content);
      assert.ok((await buffer(connection)).equals(content));
    }
  });

  describe("from the command line", () => {
    it("are listed, and have links", async () => {
      const table = await daemon.cli(["ports", sandbox.id]);
      assert.match(table.stdout, /^PORT +ADDRESS +PROCESS\n/);
      assert.match(table.stdout, /^8000 +0\.0\.0\.0 +python3\S* \(\d+\)$/m);
      const { stdout, stderr } = await daemon.cli(["preview", sandbox.id, "8000", "--expires", "10m"]);
      assert.match(stdout, new RegExp(`^http://8000-${sandbox.id}\\.localhost:\\d+/\\?forkd_preview=fkp_[\\w.-]+\\n$`));
      assert.match(stderr, /Anyone with this link/);
      const query = stdout.trim().slice(stdout.indexOf("/?"));
      assert.equal((await visit(query, {})).statusCode, 303);
    });

    it("are forwarded to local ports until Ctrl-C", async () => {
      const args = ["port", sandbox.id, "0:8001", "0:8000", "0:9999"];
      const child = spawn(FORKD, args, { env: { ...daemon.env, FORKD_NO_AUTOSTART: "1" }, stdio: ["ignore", "pipe", "pipe"] });
      let notes = "";
      child.stderr.on("data", (piece: Buffer) => (notes += piece.toString()));
      const lines: string[] = [];
      for await (const line of createInterface(child.stdout)) if (lines.push(line) === 3) break;
      const ports = lines.map((line) => {
        const [, port, guest] = new RegExp(`^127\\.0\\.0\\.1:(\\d+) → ${sandbox.id}:(\\d+)$`).exec(line) ?? assert.fail(line);
        return [Number(guest), Number(port)] as const;
      });
      const local = new Map(ports);
      const echo = connect({ port: local.get(8001) ?? 0, host: "127.0.0.1", allowHalfOpen: true });
      echo.end("there and back");
      assert.equal(await text(echo), "there and back");
      assert.equal((await fetch(`http://127.0.0.1:${local.get(8000)}/connections`)).status, 200);
      // a port without a listener is reported, and the others keep working
      const closed = connect({ port: local.get(9999) ?? 0, host: "127.0.0.1" });
      await assert.rejects(text(closed), { code: "ECONNRESET" });
      await until(() => notes.includes("port 9999"));
      assert.equal((await fetch(`http://127.0.0.1:${local.get(8000)}/connections`)).status, 200);
      child.kill("SIGINT");
      assert.deepEqual(await once(child, "exit"), [0, null]);
    });

    it("errors name the reason", async () => {
      const taken = await daemon.cli(["port", sandbox.id, `${daemon.bind?.split(":")[1]}:8000`]);
      assert.deepEqual([taken.code, /something else does/.test(taken.stderr)], [1, true]);
      assert.equal((await daemon.cli(["port", "sb-nothing", "8000"])).code, 1);
      for (const mapping of ["x", "1:2:3", "70000", "1:0", "-1"])
        assert.equal((await daemon.cli(["port", sandbox.id, mapping])).code, 2, mapping);
    });
  });

  it("survive a restart of the daemon with their links, and streams end properly when it stops", async () => {
    const { token: preview } = await sandbox.ports.preview(8000);
    const events = await visit("/events", { cookie: `forkd_preview=${preview}` });
    const connection = await sandbox.ports.connect(8001);
    await once(events, "readable");
    const streams = [text(events), text(connection)];
    await daemon.down();
    assert.deepEqual(await Promise.all(streams), ["data: 1\n\n", ""]);
    assert.equal(events.complete, true);
    await daemon.up(["--bind", daemon.bind ?? ""]);
    assert.equal((await visit("/", { cookie: `forkd_preview=${preview}` })).statusCode, 200);
    const audit = await readFile(join(daemon.home.root, "audit.log"), "utf8");
    assert.match(audit, /"principal":"preview:local"/);
    assert.doesNotMatch(audit, /fk[dp]_/);
  });
});
