// The host against a hostile or dying interpreter: only that kernel is affected.

import assert from "node:assert/strict";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { ForkdError, type ErrorCode } from "../../src/errors.ts";
import { Writer } from "../../src/util/codec.ts";
import type { AgentConnection } from "../../src/agent/wire/connection.ts";
import { Contexts } from "../../src/agent/kernel/contexts.ts";
import { parseMessage } from "../../src/agent/kernel/messages.ts";
import { Kernel, type KernelFacts } from "../../src/agent/kernel/kernel.ts";
import { CHANNEL, T } from "../../src/agent/wire/protocol.ts";
import { Network } from "../../src/egress/network.ts";
import { NO_NETWORK } from "../../src/egress/policy.ts";
import { personalize, type Personality, type UnclaimedVm } from "../../src/sandbox/fork.ts";
import { Sandbox, type SandboxParts } from "../../src/sandbox/sandbox.ts";
import { FakeAgent, KEY, messageIn, ticking, type Behaviour, watchUnhandled } from "./fake-agent.ts";

after(watchUnhandled());

const READY = { event: "ready", language: "python", version: "3.11.2" };
const REGIONS = { event: "generators", regions: [["random", 4096, 2496, "random"]], complete: true };

const BAD_LINES = [
  "",
  "null",
  "7",
  "[]",
  '"ready"',
  "{",
  "{}",
  '{"event":{}}',
  '{"event":"ready","version":{"toString":1}}',
  '{"event":"ready"}',
  '{"event":"result","id":1.5,"text":null}',
  '{"event":"result","id":1,"text":{}}',
  '{"event":"error","id":1,"type":{"toString":1},"message":"","traceback":""}',
  '{"event":"reseeded","id":1,"generators":[{"toString":1}]}',
  '{"event":"generators","regions":"all","complete":true}',
  '{"event":"generators","regions":[["a",1.5,1,"random"]],"complete":true}',
  '{"event":"generators","regions":[["a",1,1,"x"]],"complete":true}',
  '{"event":"generators","regions":[["a",-1,1,"zero"]],"complete":true}',
  '{"event":"generators","regions":[["a",9007199254740993,1,"zero"]],"complete":true}',
  '{"event":"generators","regions":[["a",1,0,"zero"]],"complete":true}',
  '{"event":"generators","regions":[["a",1,65537,"zero"]],"complete":true}',
  '{"event":"generators","regions":[["a",1,1]],"complete":true}',
  `{"event":"generators","regions":[["${"a".repeat(65)}",1,1,"zero"]],"complete":true}`,
  JSON.stringify({ event: "generators", regions: Array.from({ length: 65 }, () => ["a", 1, 1, "zero"]), complete: true }),
];

async function rejection(promise: Promise<unknown>, code: ErrorCode): Promise<ForkdError> {
  const error: unknown = await promise.then(
    () => "no rejection",
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof ForkdError, String(error));
  assert.equal(error.code, code);
  return error;
}

const ping = async (agent: AgentConnection): Promise<unknown> => agent.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
const start = async (agent: AgentConnection): Promise<Kernel> => Kernel.start(agent, "python", { timeoutMs: patience() });

/** A kernel that starts normally and answers an eval with its code; `own` sees each frame first and may consume it */
function kernelLike(own: (agent: FakeAgent, stream: number, code: string, id: number) => boolean): Behaviour {
  let running: number | undefined;
  return (agent, frame) => {
    const { type, stream } = frame;
    if (type === T.REGIONS) return agent.send(T.RESULT, stream);
    if (type === T.EXEC || type === T.ATTACH) agent.started(stream);
    if (type === T.EXEC) return agent.control(stream, READY);
    if (type === T.SIGNAL && running !== undefined)
      return agent.control(stream, { event: "error", id: running, type: "KeyboardInterrupt", message: "", traceback: "" });
    const message = messageIn(frame);
    if (message?.op !== "eval") return;
    running = message.id;
    if (!own(agent, stream, message.code ?? "", message.id)) agent.control(stream, { event: "result", id: message.id, text: message.code });
  };
}

describe("messages", () => {
  for (const line of BAD_LINES) {
    test(`${line.slice(0, 80) || "an empty line"} is invalid`, () => assert.equal(parseMessage(line), undefined));
  }

  test("of the protocol are valid, and have json only if it was sent", () => {
    assert.deepEqual(parseMessage(JSON.stringify(READY)), { event: "ready", version: "3.11.2" });
    assert.deepEqual(parseMessage(JSON.stringify(REGIONS)), REGIONS);
    assert.equal("json" in (parseMessage('{"event":"result","id":1,"text":"x"}') ?? {}), false);
    assert.equal("json" in (parseMessage('{"event":"result","id":1,"text":"None","json":null}') ?? {}), true);
  });
});

describe("a kernel", { timeout: patience() }, () => {
  test("that sends garbage stays usable", async () => {
    await using fake = await FakeAgent.listen(
      kernelLike((agent, stream) => {
        for (const line of BAD_LINES) agent.control(stream, line);
        agent.data(stream, CHANNEL.control, Buffer.of(0xff, 0xfe, 0x0a));
        return false;
      }),
    );
    const kernel = await start(await fake.connect());
    assert.equal((await kernel.eval("1 + 1")).text, "1 + 1");
    assert.deepEqual(kernel.facts, { language: "python", context: "python", cwd: "/", version: "3.11.2", reseed: "message", busy: false });
  });

  test("that sends messages in pieces is understood", async () => {
    await using fake = await FakeAgent.listen(
      kernelLike((agent, stream, _code, id) => {
        const bytes = Buffer.from(`${JSON.stringify({ event: "result", id, text: "zwölf €" })}\n`);
        for (const byte of bytes) agent.data(stream, CHANNEL.control, Buffer.of(byte));
        return true;
      }),
    );
    assert.equal((await (await start(await fake.connect())).eval("x")).text, "zwölf €");
  });

  test("whose generators the agent refuses is reseeded by message", async () => {
    for (const refuses of [true, false]) {
      await using fake = await FakeAgent.listen((agent, { type, stream }) => {
        if (type === T.REGIONS) agent.send(refuses ? T.ERROR : T.RESULT, stream, new Writer().str("bad_request").str("no").done());
        if (type !== T.EXEC) return;
        agent.started(stream);
        agent.control(stream, { ...REGIONS, complete: false });
        for (let i = 0; i < 1000; i++) agent.control(stream, REGIONS);
        agent.control(stream, READY);
      });
      const kernel = await start(await fake.connect());
      await kernel.settled();
      assert.equal(kernel.facts.reseed, refuses ? "message" : "memory");
      assert.ok(fake.count(T.REGIONS) < 100, "a flood of lists is not passed on one by one");
    }
  });

  test("that sends a line without end is abandoned, without effect on others", async () => {
    await using fake = await FakeAgent.listen(
      kernelLike((agent, stream) => {
        void agent.flood(stream, CHANNEL.control);
        return true;
      }),
    );
    const agent = await fake.connect();
    const kernel = await start(agent);
    const error = await rejection(kernel.eval("x"), "KERNEL_DIED");
    assert.match(error.message, /control message of more than/);
    assert.equal(await rejection(kernel.eval("y"), "KERNEL_DIED"), error);
    await ping(agent);
    assert.equal(fake.count(T.CANCEL), 1);
  });

  test("that sends too many values in one message is abandoned, and strings count as one value", async () => {
    const nested = (id: number): string => `{"event":"result","id":${id},"text":null,"json":[${"[],".repeat(650_000)}0]}\n`;
    const html = (id: number): string => `${JSON.stringify({ event: "result", id, text: '[{,\\",'.repeat(250_000) })}\n`;
    await using fake = await FakeAgent.listen(
      kernelLike((agent, stream, code, id) => {
        const line = Buffer.from(code === "nested" ? nested(id) : html(id));
        for (let at = 0; at < line.length; at += 60_000) agent.data(stream, CHANNEL.control, line.subarray(at, at + 60_000));
        return true;
      }),
    );
    const agent = await fake.connect();
    const kernel = await start(agent);
    assert.equal((await kernel.eval("html")).text?.length, 6 * 250_000);
    assert.match((await rejection(kernel.eval("nested"), "KERNEL_DIED")).message, /more than 1200000 values/);
    await ping(agent);
  });

  test("that sends very many messages is read slowly, in order", async () => {
    const lines = 40_000;
    await using fake = await FakeAgent.listen(
      kernelLike((agent, stream) => {
        for (let at = 0; at < 4; at++) agent.data(stream, CHANNEL.control, "{}\n".repeat(lines / 4));
        return false;
      }),
    );
    const kernel = await start(await fake.connect());
    const began = performance.now();
    assert.equal((await kernel.eval("x")).text, "x");
    const tookMs = performance.now() - began;
    assert.ok(tookMs > lines / 80, `${lines} messages were read in ${tookMs} ms`);
    assert.equal((await kernel.eval("y")).text, "y");
  });

  for (const how of ["throws", "rejects"] as const) {
    test(`whose caller's onStdout ${how} fails that eval and stays usable`, async () => {
      await using fake = await FakeAgent.listen(
        kernelLike((agent, stream, code) => {
          if (code !== "loop") return false;
          agent.data(stream, CHANNEL.stdout, "a");
          agent.data(stream, CHANNEL.stdout, "b");
          return true;
        }),
      );
      const kernel = await start(await fake.connect());
      const mine = new Error("my own");
      let calls = 0;
      const onStdout = (): void | Promise<void> => {
        calls++;
        if (how === "throws") throw mine;
        return Promise.reject(mine);
      };
      await assert.rejects(kernel.eval("loop", { onStdout }), mine);
      assert.equal((await kernel.eval("next")).text, "next");
      assert.equal(calls, 1);
    });
  }

  test("that reads no input does not hold an eval beyond its time-out", async (t) => {
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.EXEC) return;
      agent.started(stream);
      agent.control(stream, READY);
    });
    const kernel = await start(await fake.connect());
    t.mock.timers.enable({ apis: ["setTimeout"] });
    await ticking(t, rejection(kernel.eval("x".repeat(1024 * 1024), { timeoutMs: 50 }), "EVAL_TIMEOUT"));
  });

  test("that has ended is not in the facts of its sandbox", async () => {
    await using fake = await FakeAgent.listen(
      kernelLike((agent, stream) => {
        agent.exit(stream, 1);
        return true;
      }),
    );
    const agent = await fake.connect();
    const kernel = await start(agent);
    const vm = { watch: () => undefined, exited: new Promise(() => undefined) };
    const contexts = new Contexts(agent, [kernel], { isComplete: true });
    const sandbox = new Sandbox({ snapshot: {}, vm, agent, contexts } as unknown as SandboxParts);
    assert.equal(sandbox.contexts.facts.length, 1);
    await rejection(kernel.eval("import os; os._exit(1)"), "KERNEL_DIED");
    assert.deepEqual(sandbox.contexts.facts, []);
  });

  test("that is not ready in time is reported as late, also when it has ended by being killed for it", async () => {
    let execStream = 0;
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type === T.EXEC) agent.started((execStream = stream));
      if (type === T.SIGNAL) agent.exit(execStream, 137);
    });
    const error = await rejection(Kernel.start(await fake.connect(), "python", { timeoutMs: 100 }), "WARMUP_FAILED");
    assert.match(error.message, /was not ready within 100 ms/);
  });

  test("with a flood of output before it is ready keeps only the end in memory", async () => {
    await using fake = await FakeAgent.listen((agent, { type, stream }) => {
      if (type !== T.EXEC) return;
      agent.started(stream);
      void agent.flood(stream, CHANNEL.stdout);
    });
    const error = await rejection(Kernel.start(await fake.connect(), "python", { timeoutMs: 300 }), "WARMUP_FAILED");
    assert.ok(error.message.length < 20_000);
  });
});

describe("a child is handed over", { timeout: patience() }, () => {
  const memory: KernelFacts = { language: "python", version: "3", reseed: "memory", busy: false };
  const byMessage: KernelFacts = { ...memory, reseed: "message" };

  async function fork(facts: KernelFacts, filled: string[], onReseed: (agent: FakeAgent, stream: number, id: number) => void) {
    await using fake = await FakeAgent.listen((agent, frame) => {
      const now = BigInt(Date.now()) * 1_000_000n;
      const names = new Writer().list(filled, (writer, name) => void writer.str(name)).done();
      if (frame.type === T.CLOCK) agent.send(T.RESULT, frame.stream, new Writer().i64(now).done());
      if (frame.type === T.RESYNC)
        agent.send(T.RESULT, frame.stream, Buffer.concat([new Writer().i64(now).str("boot").u32(0).done(), names]));
      if (frame.type === T.ATTACH) agent.started(frame.stream);
      const message = messageIn(frame);
      if (message?.op === "reseed") onReseed(agent, frame.stream, message.id);
    });
    const vm = { pid: 0, watch: () => undefined, exited: new Promise(() => undefined), kill: async () => undefined };
    const dir = await mkdtemp(join(tmpdir(), "forkd-child-"));
    const child = { id: "sb-x", dir, vm, agent: fake.connection(), memory: { path: "", release: () => undefined } };
    const manifest = { agentKey: KEY.toString("hex"), env: {}, network: NO_NETWORK, mounts: [], kernels: [facts] };
    const over = { snapshot: { manifest }, env: {}, network: new Network(), shares: [], startedAt: 0, onGone: () => undefined };
    const sandbox = await personalize(child as unknown as UnclaimedVm, over as unknown as Personality);
    await sandbox.kill();
    return sandbox.certificate.kernels["python"];
  }
  const never = (): void => assert.fail("it was reseeded by message");

  test("as reseeded when the agent filled its kernel's generators", async () => {
    assert.deepEqual(await fork(memory, ["python/generation", "python/random"], never), { state: "reseeded", generators: ["random"] });
  });

  test("as pending when an eval was under way", async () => {
    assert.deepEqual(await fork({ ...memory, busy: true }, ["python/random"], never), { state: "pending", generators: ["random"] });
  });

  test("not at all when the agent filled none of them", async () => {
    await rejection(fork(memory, ["python/generation", "node/random"], never), "FORK_FAILED");
  });

  test("not at all when the kernel answers with an error, or ends", async () => {
    const error = { event: "error", type: "ValueError", message: "no", traceback: "" };
    await rejection(
      fork(byMessage, [], (agent, stream, id) => agent.control(stream, { ...error, id })),
      "FORK_FAILED",
    );
    await rejection(
      fork(byMessage, [], (agent, stream) => agent.exit(stream)),
      "FORK_FAILED",
    );
  });

  test("as reseeded when the kernel confirms it", async () => {
    const state = await fork(byMessage, [], (agent, stream, id) =>
      agent.control(stream, { event: "reseeded", id, generators: ["random"] }),
    );
    assert.deepEqual(state, { state: "reseeded", generators: ["random"] });
  });
});
