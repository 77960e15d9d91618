// The host against a hostile guest: proper errors, no hang, no crash, and no effect on other guests.

import assert from "node:assert/strict";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../../../../tests/helpers/until.ts";
import { patience } from "../../../../tests/helpers/patience.ts";
import { ForkdError, type ErrorCode } from "../../src/errors.ts";
import { Writer } from "../../src/util/codec.ts";
import type { AgentConnection } from "../../src/agent/wire/connection.ts";
import { readFile, statFile, writeFile } from "../../src/agent/files/content.ts";
import { ProcessRegistry } from "../../src/agent/process/registry.ts";
import { GuestProcess } from "../../src/agent/process/exclusive.ts";
import { listProcesses } from "../../src/agent/process/list.ts";
import type { ExitStatus } from "../../src/agent/process/exec.ts";
import { CHANNEL, PROTOCOL_VERSION, T, WINDOW } from "../../src/agent/wire/protocol.ts";
import { setClock, startResync } from "../../src/agent/resync.ts";
import { runProgram as runIn, type RunOptions } from "../../src/agent/process/run.ts";
import { Sandbox, type SandboxParts } from "../../src/sandbox/sandbox.ts";
import { FakeAgent, KEY, ticking, type Behaviour, watchUnhandled } from "./fake-agent.ts";

after(watchUnhandled());

async function rejection(promise: Promise<unknown>, code: ErrorCode): Promise<ForkdError> {
  const late = sleep(patience(), "late", { ref: false });
  const outcome = await Promise.race([
    promise.then(
      (value) => ({ value }),
      (error: unknown) => error,
    ),
    late,
  ]);
  assert.ok(outcome instanceof ForkdError, `expected ${code}, got ${String(outcome)}`);
  assert.equal(outcome.code, code);
  return outcome;
}

const runProgram = async (agent: AgentConnection, argv: string[], opts?: RunOptions): Promise<ExitStatus> =>
  runIn(new ProcessRegistry(agent), argv, opts);
const ping = async (agent: AgentConnection): Promise<unknown> => agent.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
const identity = { sandboxId: "sb", hostname: "h", machineId: "0".repeat(32), env: {} };

function sandboxOn(agent: AgentConnection, dir: string): Sandbox {
  const vm = { pid: process.pid, watch: () => undefined, exited: new Promise(() => undefined), kill: async () => undefined };
  const parts = { id: "sb-test", snapshot: {}, vm, agent, kernels: new Map(), memory: { path: "", release: () => undefined }, dir };
  return new Sandbox({ ...parts, forkMs: 0, onGone: () => undefined } as unknown as SandboxParts);
}

describe("malformed answers", { timeout: patience() }, () => {
  for (const bytes of [Buffer.alloc(0), Buffer.of(1, 2, 3), Buffer.alloc(60, 0xff)]) {
    test(`a RESULT of ${bytes.length} bytes is AGENT_PROTOCOL, and other streams continue`, async () => {
      await using fake = await FakeAgent.listen((agent, { stream }) => agent.send(T.RESULT, stream, bytes));
      const agent = await fake.connect();
      await rejection(statFile(agent, "/x", { timeoutMs: patience() }), "AGENT_PROTOCOL");
      await rejection(listProcesses(agent, patience()), "AGENT_PROTOCOL");
      await rejection(startResync(agent, identity, patience()), "AGENT_PROTOCOL");
      if (bytes.length < 8) await rejection(setClock(agent, patience()), "AGENT_PROTOCOL");
      await sandboxOn(agent, fake.path).setClock();
      await ping(agent);
    });
  }

  test("a short STARTED or EXIT is AGENT_PROTOCOL", async () => {
    let startedBytes = 3;
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.EXEC) return;
      if (startedBytes < 12) return agent.send(T.STARTED, stream, Buffer.alloc(startedBytes));
      agent.started(stream);
      agent.send(T.EXIT, stream, Buffer.alloc(2));
    });
    const agent = await fake.connect();
    await rejection(GuestProcess.start(agent, ["x"]), "AGENT_PROTOCOL");
    startedBytes = 28;
    await rejection(runProgram(agent, ["x"]), "AGENT_PROTOCOL");
    await ping(agent);
  });

  test("an agent of another protocol is refused, and all pending requests are rejected", async () => {
    await using fake = await FakeAgent.listen(() => undefined, { protocol: PROTOCOL_VERSION - 1 });
    const agent = fake.connection().attach(KEY);
    const resync = startResync(agent, identity, patience());
    const error = await rejection(resync, "AGENT_PROTOCOL");
    assert.match(error.message, /speaks protocol 1, this host 2/);
    assert.match(error.hint, /make the snapshot again/);
    await rejection(agent.hello(patience()), "AGENT_PROTOCOL");
  });

  test("an end before STARTED rejects the start", async () => {
    for (const type of [T.EXIT, T.RESULT]) {
      await using fake = await FakeAgent.listen((agent, { stream }) => agent.send(type, stream, Buffer.alloc(9)));
      const agent = await fake.connect();
      await rejection(runProgram(agent, ["x"]), "AGENT_PROTOCOL");
      await ping(agent);
    }
  });

  test("frames for unknown streams and of unknown types are ignored", async () => {
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.EXEC) return;
      for (const other of [0, 999, 2 ** 32 - 1])
        for (const kind of [T.DATA, T.EXIT, T.RESULT, T.ERROR, T.CREDIT]) agent.send(kind, other, Buffer.alloc(0));
      agent.send(0x7f, stream, Buffer.of(1));
      agent.started(stream);
      agent.exit(stream, 3);
    });
    const agent = await fake.connect();
    assert.equal((await runProgram(agent, ["x"])).code, 3);
  });
});

describe("data against the rules", { timeout: patience() }, () => {
  const violations: [name: string, misbehave: Behaviour][] = [
    ["beyond its credit", (agent, { stream }) => Array.from({ length: 6 }, () => agent.data(stream, 1, Buffer.alloc(WINDOW / 5)))],
    ["on a channel that does not exist", (agent, { stream }) => agent.data(stream, 200, "x")],
    ["without a channel", (agent, { stream }) => agent.send(T.DATA, stream)],
  ];
  for (const [name, misbehave] of violations) {
    test(`DATA ${name} ends the connection of all streams`, async () => {
      await using fake = await FakeAgent.listen((agent, frame) => {
        if (frame.type !== T.EXEC) return;
        agent.started(frame.stream);
        misbehave(agent, frame);
      });
      const agent = await fake.connect();
      const other = agent.call(T.CLOCK, Buffer.alloc(8), { timeoutMs: patience() });
      const program = await new ProcessRegistry(agent).start(["x"]);
      await rejection(other, "AGENT_LOST");
      await rejection(program.finish(), "AGENT_LOST");
      await rejection(ping(agent), "AGENT_LOST");
    });
  }

  test("empty DATA costs nothing, also while a consumer waits", async () => {
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.EXEC) return;
      agent.started(stream);
      agent.data(stream, CHANNEL.stdout, "first");
      for (let i = 0; i < 50_000; i++) agent.data(stream, CHANNEL.stdout, "");
      agent.exit(stream);
    });
    const agent = await fake.connect();
    let calls = 0;
    const status = await runProgram(agent, ["x"], {
      onOutput: async () => {
        calls++;
        // Its answer arrives after everything that the agent sent.
        await ping(agent);
      },
    });
    assert.deepEqual([calls, status.code], [1, 0]);
  });

  test("credit beyond the window is ignored", async () => {
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.EXEC) return;
      agent.started(stream);
      for (let i = 0; i < 8; i++) agent.send(T.CREDIT, stream, Buffer.of(0, 0xff, 0xff, 0xff, 0xff));
    });
    const agent = await fake.connect();
    const started = await new ProcessRegistry(agent).start(["x"], { stdin: "open" });
    await ping(agent);
    const sent = (): number =>
      fake.received.filter(({ type }) => type === T.DATA).reduce((sum, { payload }) => sum + payload.length - 1, 0);
    const writing = rejection(started.write(Buffer.alloc(4 * WINDOW)), "CANCELLED");
    while (sent() < WINDOW) await ping(agent);
    for (let i = 0; i < 5; i++) await ping(agent);
    started.close();
    await writing;
    await ping(agent);
    assert.equal(sent(), WINDOW);
  });

  for (const how of ["throws", "rejects"] as const) {
    test(`a consumer that ${how} cancels its stream and no other`, async () => {
      await using fake = await FakeAgent.listen((agent, { type, stream }) => {
        if (type !== T.EXEC) return;
        agent.started(stream);
        agent.data(stream, CHANNEL.stdout, "a");
        agent.data(stream, CHANNEL.stdout, "b");
      });
      const agent = await fake.connect();
      let calls = 0;
      const fail = (): void | Promise<void> => {
        calls++;
        if (how === "throws") throw new Error("full");
        return Promise.reject(new Error("full"));
      };
      const error = await rejection((await GuestProcess.start(agent, ["x"], { onOutput: fail })).exited(), "CANCELLED");
      assert.match(error.message, /full/);
      await ping(agent);
      assert.deepEqual([calls, fake.count(T.CANCEL)], [1, 1]);
    });
  }

  test("a consumer that fails after the end was received fails the run", async () => {
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.EXEC) return;
      agent.started(stream);
      agent.data(stream, CHANNEL.stdout, "a");
      agent.exit(stream);
    });
    const agent = await fake.connect();
    const onOutput = async (): Promise<void> => {
      // Its answer arrives after EXIT.
      await ping(agent);
      throw new Error("disk full");
    };
    await assert.rejects(runProgram(agent, ["x"], { onOutput }), /disk full/);
  });
});

describe("bounds", { timeout: patience() }, () => {
  test("a request over 64 KiB is refused, and the connection stays usable", async () => {
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.EXEC) return;
      agent.started(stream);
      agent.exit(stream);
    });
    const agent = await fake.connect();
    await rejection(runProgram(agent, ["x", "y".repeat(70_000)]), "BAD_REQUEST");
    await rejection(startResync(agent, { ...identity, env: { A: "b".repeat(70_000) } }, 5000), "BAD_REQUEST");
    assert.equal((await runProgram(agent, ["x"])).code, 0);
  });

  test("a silent agent does not hold a program beyond its time-out", async (t) => {
    await using fake = await FakeAgent.listen(() => undefined);
    const agent = await fake.connect();
    t.mock.timers.enable({ apis: ["setTimeout"] });
    await ticking(t, rejection(runProgram(agent, ["x"], { timeoutMs: 20 }), "AGENT_TIMEOUT"));
    await ping(agent);
    assert.deepEqual([fake.count(T.SIGNAL), fake.count(T.CANCEL)], [1, 1]);
  });

  test("a program whose EXIT never arrives: AGENT_TIMEOUT, or CANCELLED at the signal", async (t) => {
    await using fake = await FakeAgent.listen((agent, { type, stream }) => type === T.EXEC && agent.started(stream));
    const agent = await fake.connect();
    t.mock.timers.enable({ apis: ["setTimeout"] });
    await ticking(t, rejection(runProgram(agent, ["x"], { timeoutMs: 20, stdin: "x".repeat(2 * WINDOW) }), "AGENT_TIMEOUT"));
    const controller = new AbortController();
    const running = rejection(runProgram(agent, ["x"], { signal: controller.signal }), "CANCELLED");
    await until(() => fake.count(T.EXEC) === 2);
    await ping(agent);
    controller.abort(new Error("enough"));
    assert.match((await running).message, /enough/);
    await ping(agent);
    assert.deepEqual([fake.count(T.SIGNAL), fake.count(T.CANCEL)], [2, 2]);
  });

  test("output beyond the limit is consumed, dropped and reported as truncated", async () => {
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.EXEC) return;
      agent.started(stream);
      agent.data(stream, CHANNEL.stdout, "0123456");
      agent.data(stream, CHANNEL.stdout, "789abc");
      agent.data(stream, CHANNEL.stderr, "0123456789");
      agent.exit(stream);
    });
    const sandbox = sandboxOn(await fake.connect(), fake.path);
    const cut = await sandbox.exec(["yes"], { maxOutputBytes: 10 });
    assert.deepEqual([cut.stdout.toString(), cut.stderr.toString(), cut.truncated], ["0123456789", "0123456789", true]);
    assert.equal((await sandbox.exec(["yes"])).truncated, false);
  });

  test("a file over the limit is FILE_FAILED, and its transfer is abandoned", async () => {
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type === T.READ) void agent.flood(stream, 0);
    });
    const agent = await fake.connect();
    const error = await rejection(readFile(agent, "/dev/zero", { maxBytes: 1_000_000 }), "FILE_FAILED");
    assert.match(error.hint, /readChunks/);
    await ping(agent);
    assert.equal(fake.count(T.CANCEL), 1);
  });

  test("a write that the guest does not read ends at the signal", async () => {
    await using fake = await FakeAgent.listen(() => undefined);
    const agent = await fake.connect();
    const controller = new AbortController();
    const writing = rejection(writeFile(agent, "/x", Buffer.alloc(2 * WINDOW), { signal: controller.signal }), "CANCELLED");
    await until(() => fake.count(T.DATA) > 0);
    controller.abort(new Error("enough"));
    await writing;
    await rejection(runProgram(agent, ["x"], { signal: controller.signal }), "CANCELLED");
    await ping(agent);
    assert.deepEqual([fake.count(T.CANCEL), fake.count(T.EXEC)], [1, 0]);
  });

  test("an agent that gives credit without reading gets a bounded part of a large file", async (t) => {
    let given = 0;
    await using agent = await FakeAgent.listen((self, frame) => {
      if (frame.type !== T.WRITE) return;
      self.stopReading();
      const credit = new Writer().u8(CHANNEL.stdin).u32(WINDOW).done();
      const giving = setInterval(() => {
        given++;
        self.send(T.CREDIT, frame.stream, credit);
      }, 1);
      t.after(() => clearInterval(giving));
    });
    const connection = await agent.connect();
    let taken = 0;
    const endless = async function* (): AsyncGenerator<Uint8Array> {
      for (; taken < 256 * 1024 * 1024; taken += 65536) yield Buffer.alloc(65536);
    };
    const writing = writeFile(connection, "/large", endless());
    await until(() => given * WINDOW > 64 * 1024 * 1024);
    assert.ok(taken < 4 * 1024 * 1024, `${taken} bytes were taken`);
    connection.close();
    await assert.rejects(writing, { code: "AGENT_LOST" });
  });

  test("a stat of an unknown kind is AGENT_PROTOCOL", async () => {
    const answer = new Writer().u8(0x5f).u32(0).u32(0).u32(0).u64(0n).i64(0n).str("").str("").bytes(Buffer.alloc(0)).done();
    await using fake = await FakeAgent.listen((agent, { stream }) => agent.send(T.RESULT, stream, answer));
    await rejection(statFile(await fake.connect(), "/x", { timeoutMs: patience() }), "AGENT_PROTOCOL");
  });

  test("powerOff kills a guest that acknowledges and does not end", async (t) => {
    await using fake = await FakeAgent.listen((agent, { stream }) => agent.send(T.RESULT, stream));
    const sandbox = sandboxOn(await fake.connect(), await mkdtemp(join(tmpdir(), "forkd-sandbox-")));
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const off = sandbox.powerOff();
    await until(() => fake.received.length > 0);
    assert.equal(sandbox.alive, true);
    await ticking(t, off);
    assert.equal(sandbox.alive, false);
  });
});
