// Many watchers and writers of one process: each gets all output once, over one stream of the agent.

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { Writer } from "../../src/util/codec.ts";
import { ProcessRegistry } from "../../src/agent/process/registry.ts";
import { CHANNEL, T, WINDOW } from "../../src/agent/wire/protocol.ts";
import { until } from "../../../../tests/helpers/until.ts";
import { FakeAgent, watchUnhandled } from "./fake-agent.ts";
import { behaveLike, FakeProcess } from "./fake-process.ts";
import type { OutputEvent, Watch } from "../../src/agent/process/output.ts";

after(watchUnhandled());

type Setting = AsyncDisposable & {
  agent: FakeAgent;
  hub: ProcessRegistry;
  hangUp: () => void;
  add: (id: number, tag?: string) => FakeProcess;
  next: () => FakeProcess;
};

async function setting(opts: { stallMs?: number } = {}): Promise<Setting> {
  const processes: FakeProcess[] = [];
  const startable: FakeProcess[] = [];
  const agent = await FakeAgent.listen(behaveLike(processes, startable));
  const connection = await agent.connect();
  const hub = new ProcessRegistry(connection, opts);
  const add = (id: number, tag = ""): FakeProcess => {
    const made = new FakeProcess(agent, id, tag);
    processes.push(made);
    return made;
  };
  const next = (): FakeProcess => {
    const made = new FakeProcess(agent, processes.length + startable.length + 1);
    startable.push(made);
    return made;
  };
  return { agent, hub, hangUp: () => connection.close(), add, next, [Symbol.asyncDispose]: async () => agent[Symbol.asyncDispose]() };
}

/** A watcher's output, joined; `lost` and `exit` in brackets */
async function textOf(watch: Watch): Promise<string> {
  let text = "";
  for await (const event of watch) text += show(event);
  return text;
}

function show(event: OutputEvent): string {
  if (event.type === "data") return event.channel === "stdout" ? event.bytes.toString() : `<${event.bytes.toString()}>`;
  return event.type === "lost" ? `[lost ${event.bytes}]` : `[exit ${event.status.code}]`;
}

/** Reads until this much has arrived, and leaves the rest */
async function take(watch: Watch, length: number): Promise<string> {
  let text = "";
  while (text.length < length) {
    const step = await watch.next();
    assert.ok(!step.done, `it ended after ${JSON.stringify(text)}`);
    text += show(step.value);
  }
  return text;
}

describe("watchers", () => {
  test("share one stream, and each gets all output", async () => {
    await using s = await setting();
    const program = s.next();
    const first = await s.hub.start(["fake"]);
    const { watch: second } = await s.hub.watch({ id: first.id });
    const both = Promise.all([textOf(first), textOf(second)]);
    program.print("out");
    program.print("err", CHANNEL.stderr);
    program.print("more");
    program.exit(3);
    assert.deepEqual(await both, ["out<err>more[exit 3]", "out<err>more[exit 3]"]);
    assert.equal(program.streams.length, 1);
    assert.deepEqual([first.id, first.pid], [1, 101]);
  });

  test("that attach later get older output, and the others get nothing twice", async () => {
    await using s = await setting();
    const program = s.next();
    const first = await s.hub.start(["fake"]);
    program.print("0123456789");
    program.print("abc", CHANNEL.stderr);
    assert.equal(await take(first, 15), "0123456789<abc>");
    const { watch: second } = await s.hub.watch({ id: 1 }, { stdout: 4, stderr: "now" });
    assert.deepEqual(program.streams.at(-1)?.from, [4, 3]);
    assert.deepEqual(second.began, { stdout: 4, stderr: 3 });
    program.print("next");
    program.exit(0);
    assert.deepEqual(await Promise.all([textOf(first), textOf(second)]), ["next[exit 0]", "456789next[exit 0]"]);
    assert.equal(program.streams.length, 2);
  });

  test("that want only new output skip output queued for slower ones", async () => {
    await using s = await setting();
    const program = s.next();
    const slow = await s.hub.start(["fake"]);
    program.print("old");
    const { watch: fresh } = await s.hub.watch({ id: 1 }, { stdout: "now", stderr: "now" });
    program.print("new");
    program.exit(0);
    assert.deepEqual(await Promise.all([textOf(slow), textOf(fresh)]), ["oldnew[exit 0]", "new[exit 0]"]);
  });

  test("get the number of bytes that are no longer kept", async () => {
    await using s = await setting();
    const program = s.add(1);
    program.print("0123456789");
    program.forgetBefore(6);
    const { watch } = await s.hub.watch({ id: 1 }, { stdout: 2 });
    program.exit(0);
    assert.equal(await textOf(watch), "[lost 4]6789[exit 0]");
    assert.deepEqual(watch.began, { stdout: 6, stderr: 0 });
  });

  test("whose offset is beyond the end begin at the end", async () => {
    await using s = await setting();
    const program = s.add(1);
    program.print("01");
    const { watch } = await s.hub.watch({ id: 1 }, { stdout: 1000 });
    program.print("23");
    program.exit(0);
    assert.equal(await textOf(watch), "23[exit 0]");
  });

  test("that detach leave the program running, and can continue at their offset", async () => {
    await using s = await setting();
    const program = s.next();
    const first = await s.hub.start(["fake"]);
    program.print("one");
    await take(first, 3);
    first.close();
    await until(() => !program.isAttached);
    program.print("two");
    const { watch: again } = await s.hub.watch({ id: 1 }, { stdout: 3 });
    program.print("three");
    program.exit(0);
    assert.equal(await textOf(again), "twothree[exit 0]");
    assert.deepEqual(program.signals, []);
    assert.deepEqual(await textOf(first), "");
  });

  test("that attach between the end and its delivery get everything", async () => {
    await using s = await setting();
    const program = s.next();
    const slow = await s.hub.start(["fake"]);
    program.print("0123");
    program.print("4567");
    program.exit(0);
    // output and end have arrived, and only the first part was read
    assert.equal(await take(slow, 4), "0123");
    const gate = Promise.withResolvers<void>();
    program.gate = gate.promise;
    const attaching = s.hub.watch({ id: 1 });
    await until(() => s.agent.count(T.ATTACH) === 1);
    const rest = textOf(slow);
    await s.hub.list();
    gate.resolve();
    assert.deepEqual(await Promise.all([rest, textOf((await attaching).watch)]), ["4567[exit 0]", "01234567[exit 0]"]);
  });

  test("of an ended process get its kept output and its end", async () => {
    await using s = await setting();
    const program = s.add(1);
    program.print("last words");
    program.exit(7);
    for (let i = 0; i < 2; i++) assert.equal(await textOf((await s.hub.watch({ id: 1 })).watch), "last words[exit 7]");
  });

  test("of a guest whose agent has ended get the remaining output, then the error", async () => {
    await using s = await setting();
    const program = s.next();
    const watch = await s.hub.start(["fake"]);
    program.print("so far");
    await assert.rejects(s.hub.start(["fake"]), { code: "EXEC_FAILED" });
    s.hangUp();
    assert.equal(await take(watch, 6), "so far");
    await assert.rejects(watch.next(), { code: "AGENT_LOST" });
    await assert.rejects(watch.write("x"), { code: "AGENT_LOST" });
  });
});

describe("a slow watcher", () => {
  test("blocks the program, and nothing is buffered on the host", async () => {
    await using s = await setting();
    const program = s.next();
    const watch = await s.hub.start(["fake"]);
    const all = "x".repeat(4 * WINDOW);
    program.print(all);
    const { watch: fast } = await s.hub.watch({ id: 1 }, { stdout: 0 });
    const read = textOf(fast);
    await s.hub.list();
    const credits = (): number => s.agent.count(T.CREDIT);
    const before = credits();
    await s.hub.list();
    assert.equal(credits(), before, "credit was given for unread output");
    program.exit(0);
    assert.equal((await textOf(watch)).length, all.length + "[exit 0]".length);
    assert.equal((await read).length, all.length + "[exit 0]".length);
  });

  test("is dropped after a while, so that the program and the others continue", async (t) => {
    await using s = await setting({ stallMs: 50 });
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const program = s.next();
    const dead = await s.hub.start(["fake"]);
    const { watch: alive } = await s.hub.watch({ id: 1 });
    program.print("x".repeat(2 * WINDOW));
    program.exit(0);
    const first = await take(alive, 1);
    const read = textOf(alive);
    t.mock.timers.tick(50);
    assert.equal(first.length + (await read).length, 2 * WINDOW + "[exit 0]".length);
    assert.ok(dead.dropped.aborted);
    await assert.rejects(dead.next(), { code: "CANCELLED" });
    assert.equal((await textOf((await s.hub.watch({ id: 1 }, { stdout: 2 * WINDOW - 3 })).watch)).slice(0, 4), "xxx[");
  });

  test("that reads a little at times is not dropped", async (t) => {
    await using s = await setting({ stallMs: 200 });
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const program = s.next();
    const watch = await s.hub.start(["fake"]);
    const pieces = 8;
    for (let i = 0; i < pieces; i++) program.print("y".repeat(32_768));
    let length = 0;
    // Its answer arrives after all output.
    await s.hub.list();
    // Queued output is delivered in larger pieces than it arrived in.
    let steps = 0;
    for (; length < pieces * 32_768; steps++) {
      t.mock.timers.tick(150);
      const step = await watch.next();
      assert.ok(!step.done && step.value.type === "data");
      length += step.value.bytes.length;
    }
    assert.ok(steps >= 3, "it would have been dropped within that time");
    assert.equal(length, pieces * 32_768);
    assert.equal(watch.dropped.aborted, false);
    watch.close();
  });
});

describe("writers", () => {
  test("need no watcher, and their pieces do not interleave", async () => {
    await using s = await setting();
    const program = s.add(1);
    const pieces = ["a", "b", "c"].map((letter) => letter.repeat(80_000));
    await Promise.all(pieces.map(async (piece) => s.hub.use({ id: 1 }, async (shared) => shared.write(Buffer.from(piece)))));
    await until(() => program.stdin.length === 240_000);
    assert.equal(program.stdin.replaceAll(/(.)\1+/g, "$1").length, 3);
    await until(() => !program.isAttached);
  });

  test("continue at their position when another stream takes over", async () => {
    await using s = await setting();
    const program = s.next();
    const watch = await s.hub.start(["fake"], { stdin: "open" });
    program.print("older");
    await take(watch, 5);
    const text = Array.from({ length: 60_000 }, (_, i) => String(i).padStart(8, "0")).join("");
    const writing = watch.write(text);
    await until(() => program.stdin.length === WINDOW);
    // the writer has no credit left, and the next stream begins with the agent's credit
    program.room = 100_000;
    const { watch: second } = await s.hub.watch({ id: 1 }, { stdout: 0 });
    await until(() => program.stdin.length === WINDOW + 100_000);
    program.giveStdinCredit(WINDOW);
    await writing;
    await until(() => program.stdin.length === text.length);
    assert.ok(program.stdin === text, "output was lost, repeated or mixed");
    watch.close();
    second.close();
  });

  test("get an error when another client has closed stdin", async () => {
    await using s = await setting();
    const program = s.next();
    const watch = await s.hub.start(["fake"], { stdin: "open" });
    await watch.write("in time");
    await watch.closeStdin();
    await assert.rejects(watch.write("late"), { code: "STDIN_CLOSED" });
    await until(() => !program.stdinOpen);
    assert.equal(program.stdin, "in time");
    const other = s.add(2);
    other.closeStdin();
    await assert.rejects(
      s.hub.use({ id: 2 }, async (shared) => shared.write(Buffer.from("x"))),
      { code: "STDIN_CLOSED" },
    );
    s.next();
    await assert.rejects((await s.hub.start(["fake"])).write("x"), { code: "STDIN_CLOSED" });
    watch.close();
  });

  test("of a process that ends get an error", async () => {
    await using s = await setting();
    const program = s.next();
    const watch = await s.hub.start(["fake"], { stdin: "open" });
    const writing = watch.write("x".repeat(2 * WINDOW));
    await until(() => program.stdin.length === WINDOW);
    program.exit(0);
    await assert.rejects(writing, { code: "PROCESS_ENDED" });
    await assert.rejects(
      s.hub.use({ id: 1 }, () => undefined),
      { code: "PROCESS_ENDED" },
    );
    watch.close();
  });
});

describe("processes", () => {
  test("are found by id and by tag, the running one first; forkd's own are hidden", async () => {
    await using s = await setting();
    s.add(1, "kernel/python");
    s.add(2, "web").exit(0);
    s.add(3, "web");
    s.add(4, "web").exit(0);
    s.add(5);
    assert.deepEqual(
      (await s.hub.list()).map(({ id }) => id),
      [2, 3, 4, 5],
    );
    assert.equal((await s.hub.find({ tag: "web" })).id, 3);
    assert.equal((await s.hub.find({ id: 4 })).exit?.code, 0);
    for (const which of [{ id: 1 }, { id: 9 }, { tag: "kernel/python" }, { tag: "" }, { tag: "nothing" }])
      await assert.rejects(s.hub.watch(which), { code: "NOT_FOUND" });
  });

  test("are signalled and resized over a stream that is closed again", async () => {
    await using s = await setting();
    const program = s.add(1);
    await s.hub.use({ id: 1 }, (shared) => {
      shared.signal("SIGINT", "group");
      shared.resize({ rows: 50, cols: 132 });
    });
    await until(() => !program.isAttached);
    assert.deepEqual([program.signals, program.sizes], [[2], [[50, 132]]]);
    assert.deepEqual(program.streams[0]?.from, ["now", "now"]);
  });

  test("that are being started are not taken over by a lookup", async () => {
    await using s = await setting();
    const program = s.next();
    const starting = s.hub.start(["fake"]);
    const finding = s.hub.watch({ id: 1 });
    const [first, { watch: second }] = await Promise.all([starting, finding]);
    program.print("once");
    program.exit(0);
    assert.deepEqual(await Promise.all([textOf(first), textOf(second)]), ["once[exit 0]", "once[exit 0]"]);
    assert.equal(program.streams.length, 1);
  });

  test("a list without an end, or out of order, is refused", async () => {
    const page = (ids: number[], more: number): Buffer => {
      const writer = new Writer().list(ids, (out, id) => new FakeProcess(undefined as never, id).entry(out));
      return writer.u8(more).done();
    };
    for (const answer of [page([], 1), page([2, 1], 0), page([1], 1)]) {
      await using agent = await FakeAgent.listen((self, { type, stream }) => {
        if (type === T.LIST) self.send(T.RESULT, stream, answer);
      });
      await assert.rejects(new ProcessRegistry(await agent.connect()).list(), { code: "AGENT_PROTOCOL" });
    }
  });

  test("a list with long parts is refused, and so is an argv that the agent would have truncated", async () => {
    let parts = 0;
    const long = (id: number, arg: string, args: number): Buffer =>
      new Writer()
        .list([id], (out) => {
          out
            .u64(BigInt(id))
            .u32(1)
            .str("")
            .list(Array<string>(args).fill(arg), (item, text) => void item.str(text));
          out.u8(1).i32(0).u32(0).u8(0).u8(0).u8(0).i64(0n).str("").str("").u64(0n).u64(0n);
        })
        .u8(1)
        .done();
    await using endless = await FakeAgent.listen((self, { type, stream }) => {
      if (type === T.LIST) self.send(T.RESULT, stream, long(++parts, "x".repeat(1000), 60));
    });
    await assert.rejects(new ProcessRegistry(await endless.connect()).list(), { code: "AGENT_PROTOCOL", message: /without an end/ });
    assert.ok(parts < 300, `${parts} parts were asked for`);
    await using many = await FakeAgent.listen((self, { type, stream }) => {
      if (type === T.LIST) self.send(T.RESULT, stream, long(1, "", 10_000));
    });
    await assert.rejects(new ProcessRegistry(await many.connect()).list(), { code: "AGENT_PROTOCOL", message: /list of 10000 items/ });
  });
});
