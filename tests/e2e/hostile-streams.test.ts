// A guest that sends to clients that do not read: buffers stay bounded, and its sibling is served.
// Runs alone: it compares how long evals take.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { request, type ClientRequest, type IncomingMessage } from "node:http";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { after, afterEach, before, describe, it } from "node:test";
import { Controller } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { residentMemory } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

const MIB = 1024 * 1024;
const HOSTILE = join(import.meta.dirname, "..", "helpers", "hostile.py");
/** Allowed memory growth of the daemon during the attack */
const MOST_MORE_MIB = 64;
const EVALS = 60;
/** Allowed ratio of the sibling's eval time to its eval time beside a busy but harmless guest */
const MOST_TIMES = 3;
const MOST_ROUNDS = 4;

type Client = { method: string; path: string; headers?: Record<string, string>; body?: object };

describe("a guest that sends to clients who do not read", () => {
  let daemon: TestDaemon;
  let forkd: Controller;
  let sibling: string;
  let hostile: string;
  let quietMs: number;
  let deaf: Server;
  const peers: Socket[] = [];
  const clients: ClientRequest[] = [];

  before(async () => {
    deaf = createServer((peer) => {
      peer.on("error", () => undefined); // reset when its sandbox ends
      peers.push(peer.pause());
    });
    await new Promise<void>((resolve) => deaf.listen(0, "127.0.0.1", resolve));
    daemon = await TestDaemon.start();
    await daemon.makePython();
    forkd = new Controller({ socket: daemon.socket, timeoutMs: patience(), retries: 0 });
    sibling = await fork();
    hostile = await fork();
    await forkd.execCommand(hostile, ["sh", "-c", "while :; do :; done > /dev/null 2>&1 &"]);
    quietMs = (await evals(EVALS)).p99;
  });
  after(async () => {
    for (const peer of peers) peer.destroy();
    deaf.close();
    await daemon[Symbol.asyncDispose]();
  });

  afterEach(async () => {
    for (const client of clients.splice(0)) client.destroy();
    await forkd.killSandbox(hostile);
    assert.equal((await forkd.evalCode(sibling, "6 * 7")).result, "42");
  });

  async function fork(): Promise<string> {
    const { port } = deaf.address() as { port: number };
    const [made] = await forkd.spawnSandboxes("python", { network: { mode: "allow", allow: [`127.0.0.1:${port}`] } });
    assert.ok(made);
    return made.id;
  }

  async function evals(count: number): Promise<{ p99: number; rssMiB: number }> {
    const took: number[] = [];
    let rssMiB = 0;
    for (let at = 0; at < count; at++) {
      const from = performance.now();
      assert.equal((await forkd.evalCode(sibling, "6 * 7")).result, "42");
      took.push(performance.now() - from);
      rssMiB = Math.max(rssMiB, residentMemory(daemon.pid).bytes / MIB);
    }
    took.sort((a, b) => a - b);
    return { p99: took[Math.ceil(count * 0.99) - 2] ?? 0, rssMiB };
  }

  /** Sends a request and does not read the body; resolves with the response when its headers arrive */
  function ask({ method, path, headers = {}, body }: Client): Promise<IncomingMessage | undefined> {
    const sent = request({ socketPath: daemon.socket, method, path, headers: { "content-type": "application/json", ...headers } });
    clients.push(sent);
    sent.end(body ? JSON.stringify(body) : undefined);
    const answered = once(sent, "response").then(([answer]) => (answer as IncomingMessage).pause());
    // the sandbox may be lost, or the request destroyed at the end
    return answered.catch(() => undefined);
  }

  async function takeOver(mode: string): Promise<void> {
    hostile = await fork();
    const { port } = deaf.address() as { port: number };
    await forkd.writeFile(hostile, "/tmp/hostile.py", await readFile(HOSTILE));
    const started = await forkd.execCommand(hostile, ["python3", "/tmp/hostile.py", mode, String(port)]);
    assert.equal(started.exit_code, 0, started.stderr);
    const left = new AbortController();
    forkd.writeFile(hostile, "/tmp/begin", new Uint8Array(), { signal: left.signal }).catch(() => undefined);
    await until(async () => (await Array.fromAsync(forkd.logs(hostile))).join("").includes("attacking"));
    left.abort();
  }

  /** Two clients for each kind of stream */
  function askForAll(): Promise<IncomingMessage | undefined>[] {
    const at = `/v1/sandboxes/${hostile}`;
    const events = { accept: "text/event-stream" };
    const all: Client[] = [
      { method: "GET", path: `${at}/files?path=/etc/hosts` },
      { method: "GET", path: `${at}/files/tar?path=/etc` },
      { method: "GET", path: `${at}/files/watch?path=/etc` },
      { method: "GET", path: `${at}/proxy/80/` },
      { method: "POST", path: `${at}/processes`, headers: events, body: { args: ["x"] } },
      { method: "POST", path: `${at}/eval/stream`, headers: events, body: { code: "1" } },
      { method: "POST", path: `${at}/exec`, body: { args: ["x"] } },
    ];
    return [...all, ...all].map(ask);
  }

  for (const [mode, what] of [
    ["crumbs", "single bytes"],
    ["eofs", "the end of a stream again and again"],
    ["endless", "files without an end"],
    ["changes", "changes of files without an end"],
    ["messages", "messages of an interpreter"],
    ["questions", "questions for names"],
    ["turns", "single bytes in turn, to clients who read"],
  ] as const) {
    it(`costs the daemon little memory and its sibling little time: ${what}`, async () => {
      await takeOver(mode);
      const before = residentMemory(daemon.pid).bytes / MIB;
      const answers = askForAll();
      if (mode === "turns") for (const answer of answers) void answer.then((stream) => stream?.resume());
      // Other load on the host slows down single rounds; a blocked daemon slows down all of them.
      const rounds: number[] = [];
      do {
        const { p99, rssMiB } = await evals(EVALS);
        rounds.push(p99);
        assert.ok(rssMiB - before < MOST_MORE_MIB, `the daemon took ${rssMiB - before} MiB more`);
      } while (Math.min(...rounds) >= MOST_TIMES * quietMs && rounds.length < MOST_ROUNDS);
      const p99 = Math.min(...rounds);
      assert.ok(p99 < MOST_TIMES * quietMs, `an eval of the sibling took ${p99} ms, and ${quietMs} ms in quiet`);
    });
  }

  for (const [mode, what, method, told] of [
    ["pages", "a folder without an end", "ListDir", /more than 50000 entries/],
    ["endless", "users without an end", "Stat", /more than 1048576 bytes/],
  ] as const) {
    it(`is refused by E2B's protocol: ${what}`, async () => {
      await takeOver(mode);
      const before = residentMemory(daemon.pid).bytes / MIB;
      const answer = await ask({
        method: "POST",
        path: `/filesystem.Filesystem/${method}`,
        headers: { "e2b-sandbox-id": hostile.replace("-", ""), "e2b-sandbox-port": "49983" },
        body: { path: "/d", depth: 10 },
      });
      assert.ok(answer);
      const text = Buffer.concat(await Array.fromAsync(answer as AsyncIterable<Buffer>)).toString();
      assert.match(text, told);
      const more = residentMemory(daemon.pid).bytes / MIB - before;
      assert.ok(more < MOST_MORE_MIB, `the daemon took ${more} MiB more`);
    });
  }
});
