// The QMP client against a VMM that does not answer, or sends invalid messages.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import * as z from "zod";
import { patience } from "../../../../tests/helpers/patience.ts";
import { until } from "../../../../tests/helpers/until.ts";
import { Qmp } from "../../src/vmm/qemu/qmp.ts";

const GREETING = '{"QMP": {"version": {}, "capabilities": []}}\n';

type Command = { execute: string; id: number };

/** A VMM with a scripted answer per command; undefined: it does not answer */
class FakeVmm {
  readonly asked: string[] = [];
  readonly #answer: (command: Command) => string | undefined;
  #socket: Socket | undefined;
  path = "";

  constructor(answer: (command: Command) => string | undefined) {
    this.#answer = answer;
  }

  async listen(t: TestContext): Promise<this> {
    const dir = await mkdtemp(join(tmpdir(), "forkd-qmp-"));
    this.path = join(dir, "qmp");
    const server = createServer((socket) => {
      this.#socket = socket.setEncoding("utf8").on("error", () => undefined);
      let rest = "";
      socket.on("data", (text: string) => {
        const lines = (rest + text).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) this.#take(JSON.parse(line) as Command);
      });
    });
    await new Promise<void>((resolve) => server.listen(this.path, resolve));
    t.after(async () => {
      this.#socket?.destroy();
      server.close();
      await rm(dir, { recursive: true });
    });
    return this;
  }

  async connect(t: TestContext, opts?: { withinMs: number }): Promise<Qmp> {
    const qmp = new Qmp(this.path, opts);
    t.after(() => qmp.close());
    await until(() => this.#socket !== undefined);
    return qmp;
  }

  say(text: string): void {
    this.#socket?.write(text);
  }

  #take(command: Command): void {
    this.asked.push(command.execute);
    const answer = command.execute === "qmp_capabilities" ? "{}" : this.#answer(command);
    if (answer !== undefined) this.say(`{"return": ${answer}, "id": ${command.id}}\n`);
  }
}

describe("a VMM that does not answer", { timeout: patience() }, () => {
  test("not even with its greeting is abandoned, and gets no abandoned command later", async (t) => {
    const vmm = await new FakeVmm(() => "{}").listen(t);
    const qmp = await vmm.connect(t, { withinMs: 50 });
    await assert.rejects(qmp.ready(), { code: "VMM_FAILED", message: /greeting within 50 ms/ });
    await assert.rejects(qmp.execute("blockdev-del", z.unknown()), { code: "VMM_FAILED", message: /blockdev-del within 50 ms/ });
    vmm.say(GREETING);
    await qmp.execute("query-name", z.unknown(), undefined, patience());
    assert.deepEqual(vmm.asked, ["qmp_capabilities", "query-name"]);
  });

  test("a command is abandoned, others continue, and its answer may arrive late", async (t) => {
    let late: number | undefined;
    const vmm = await new FakeVmm(({ execute, id }) => (execute === "slow" ? void (late = id) : '"yes"')).listen(t);
    const qmp = await vmm.connect(t);
    vmm.say(GREETING);
    await assert.rejects(qmp.execute("slow", z.unknown(), undefined, 50), { code: "VMM_FAILED", message: /slow within 50 ms/ });
    vmm.say(`{"return": {}, "id": ${late}}\n`);
    assert.equal(await qmp.execute("quick", z.string()), "yes");
  });

  test("gets a bounded number of commands", async (t) => {
    const vmm = await new FakeVmm(({ execute }) => (execute === "first" ? '"yes"' : undefined)).listen(t);
    const qmp = await vmm.connect(t);
    vmm.say(GREETING);
    // Completes the greeting, so that it does not count against the time limit of the following commands.
    await qmp.execute("first", z.string());
    const ask = async (): Promise<unknown> => qmp.execute("query-name", z.unknown(), undefined, 50);
    const outcomes = await Promise.allSettled(Array.from({ length: 300 }, ask));
    assert.ok(outcomes.every(({ status }) => status === "rejected"));
    await assert.rejects(ask(), { message: /has not answered the last 256 commands/ });
    // "qmp_capabilities", "first" and the 256 commands that were sent; a busy machine may read them late.
    await until(() => vmm.asked.length >= 258);
    assert.equal(vmm.asked.length, 258);
  });
});

describe("a VMM that sends", { timeout: patience() }, () => {
  for (const [what, answer] of [
    ["an object in place of text", '{"length": 50000000}'],
    ["a number in place of text", "7"],
    ["more answers than requests", JSON.stringify("x".repeat(2000))],
  ] as const)
    test(`${what} is refused`, async (t) => {
      const vmm = await new FakeVmm(() => answer).listen(t);
      const qmp = await vmm.connect(t);
      vmm.say(GREETING);
      await assert.rejects(qmp.execute("ringbuf-read", z.string().max(1000)), { code: "VMM_FAILED", message: /is not what it should be/ });
      assert.deepEqual(await qmp.execute("other", z.unknown()), JSON.parse(answer));
    });

  test("very many lines is read slowly, and still answered", async (t) => {
    const lines = 16_384;
    const vmm = await new FakeVmm(() => `"yes"`).listen(t);
    const qmp = await vmm.connect(t);
    vmm.say(GREETING);
    await qmp.ready();
    const began = performance.now();
    vmm.say('{"event": "X"}\n'.repeat(lines));
    assert.equal(await qmp.execute("query-name", z.string(), undefined, patience()), "yes");
    const tookMs = performance.now() - began;
    assert.ok(tookMs > lines / 32, `${lines} lines were read in ${tookMs} ms`);
  });

  for (const [what, line] of [
    ["an error without a description", '{"error": {"desc": {"a": 1}}, "id": 2}'],
    ["an invalid id", '{"return": {}, "id": [2]}'],
    ["something other than an object", "[1]"],
    ["something other than JSON", "{"],
    ["a line without an end", "x".repeat(2 * 1024 * 1024)],
  ] as const)
    test(`${what} loses its channel`, async (t) => {
      const vmm = await new FakeVmm(() => undefined).listen(t);
      const qmp = await vmm.connect(t);
      vmm.say(GREETING);
      const asked = qmp.execute("query-name", z.unknown());
      vmm.say(`${line}\n`);
      await assert.rejects(asked, { code: "VMM_EXITED" });
    });
});

/**
 * Listens with the smallest backlog and accepts nothing until it reads a line; then greets each client and answers its
 * first command
 */
const SLOW_TO_ACCEPT = `
import json, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(0)
print("listens", flush=True)
sys.stdin.readline()
while True:
    client, _ = server.accept()
    try:
        client.sendall(b'{"QMP": {}}\\n')
        command = client.makefile().readline()
        if command: client.sendall(json.dumps({"return": {}, "id": json.loads(command)["id"]}).encode() + b"\\n")
    except OSError:
        pass  # of the clients that only filled the queue
`;

test("a VMM that is slow to accept connections is not taken for one that has ended", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-qmp-"));
  const path = join(dir, "qmp");
  const vmm = spawn("python3", ["-c", SLOW_TO_ACCEPT, path], { stdio: ["pipe", "pipe", "inherit"] });
  const early: Socket[] = [];
  t.after(async () => {
    for (const socket of early) socket.destroy();
    vmm.kill("SIGKILL");
    await rm(dir, { recursive: true });
  });
  await once(vmm.stdout, "data");
  for (let isFull = false; !isFull;) {
    const socket = connect(path);
    early.push(socket);
    isFull = await new Promise((resolve) => socket.on("connect", () => resolve(false)).on("error", () => resolve(true)));
  }
  const qmp = new Qmp(path, { withinMs: patience() });
  t.after(() => qmp.close());
  const ready = qmp.ready();
  for (const socket of early) socket.destroy();
  vmm.stdin.write("accept\n");
  await ready;
});
