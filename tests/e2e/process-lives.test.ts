// Processes that outlive their watchers: branches, a daemon that stops or crashes, misbehaving clients.

import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, describe, it } from "node:test";
import { Sandbox, type Process } from "forkd";
import { WebSocket } from "ws";
import { TestDaemon } from "../helpers/daemon.ts";
import { SpecClient } from "../helpers/spec-client.ts";
import { until } from "../helpers/until.ts";

/** Prints numbers and its input; ends at "stop" */
const COUNTER = `
import sys, threading, time
def listen():
    for line in sys.stdin:
        if line == "stop\\n": break
        print("told", line, end="", flush=True)
    global going
    going = False
going = True
threading.Thread(target=listen, daemon=True).start()
i = 0
while going:
    i += 1
    print(i, flush=True)
    time.sleep(0.005)
print("end")
`;

type Watched = { process: Process; text: () => string };

function watched(process: Process): Watched {
  let text = "";
  void (async () => {
    for await (const event of process.output()) text += event.type === "lost" ? `[lost ${event.bytes}]\n` : event.text;
  })().catch((error: unknown) => (text += `[${String(error)}]`));
  return { process, text: () => text };
}

/** Numbers in the output; NaN for anything unexpected */
function numbersIn(text: string): number[] {
  return text
    .split("\n")
    .filter((line) => line !== "" && line !== "end" && !line.startsWith("told"))
    .map(Number);
}

function assertEachOnce(text: string, from = 1): void {
  const numbers = numbersIn(text);
  assert.ok(numbers.length > 0, "there are no numbers");
  assert.deepEqual(
    numbers,
    numbers.map((_, i) => from + i),
    "a number is missing, or came twice",
  );
}

describe("a process", () => {
  let daemon: TestDaemon;
  let sandbox: Sandbox;
  let stalled: { sandbox: Sandbox; hangUp: () => void };

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    sandbox = await Sandbox.create("python", { controller: daemon.controller });
    stalled = await startStalled();
  });

  after(async () => daemon[Symbol.asyncDispose]());

  /**
   * Starts a process whose two watchers do not read. They are dropped after half a minute, so it starts before all
   * tests
   */
  async function startStalled(): Promise<typeof stalled> {
    const own = await Sandbox.create("python", { controller: daemon.controller });
    const rest = new SpecClient({ socketPath: daemon.socket });
    const path = `/v1/sandboxes/${own.id}/processes`;
    const json = { args: ["sh", "-c", "head -c 5000000 /dev/zero"], tag: "stalled" };
    const deaf = await rest.open("POST", path, { json, headers: { accept: "text/event-stream" } });
    deaf.pause();
    const socket = new WebSocket(`ws+unix:${daemon.socket}:${path}/stream`);
    await once(socket, "open");
    socket.send(JSON.stringify({ attach: { process: "stalled" } }));
    socket.pause();
    assert.equal((await own.processes.get("stalled")).state, "running");
    const hangUp = (): void => {
      deaf.destroy();
      socket.terminate();
    };
    return { sandbox: own, hangUp };
  }

  const startCounter = async (tag: string): Promise<Watched> =>
    watched(await sandbox.processes.start(["python3", "-c", COUNTER], { tag, stdin: true }));

  const stop = async ({ process, text }: Watched): Promise<void> => {
    await process.write("stop\n");
    await until(() => text().endsWith("end\n"));
  };

  it("survives a branch: the source's watcher misses nothing, and the process continues in a child", async () => {
    const source = await startCounter("branched");
    await until(() => numbersIn(source.text()).length > 50);
    const [child] = await sandbox.fork(1);
    assert.ok(child);
    const known = await child.processes.get("branched");
    assert.deepEqual([known.id, known.pid, known.state], [source.process.id, source.process.pid, "running"]);

    const inChild = watched(await child.processes.attach(source.process.id));
    const before = numbersIn(source.text()).length;
    await until(() => numbersIn(inChild.text()).length > 100 && numbersIn(source.text()).length > before + 50);
    await inChild.process.write("only you\n");
    await until(() => inChild.text().includes("told only you"));
    await stop(inChild);
    assertEachOnce(inChild.text());
    assert.equal((await inChild.process.wait()).exit_code, 0);

    assert.equal((await sandbox.processes.get("branched")).state, "running");
    await stop(source);
    assertEachOnce(source.text());
    assert.ok(!source.text().includes("only you"));
    await child.kill();
  });

  it("survives several branches in a row, each with its own continuation", async () => {
    const source = await startCounter("often");
    const children: Sandbox[] = [];
    for (let i = 0; i < 3; i++) {
      await until(() => numbersIn(source.text()).length > 40 * (i + 1));
      children.push(...(await sandbox.fork(1)));
    }
    await stop(source);
    assertEachOnce(source.text());
    for (const child of children) {
      const live = watched(await child.processes.attach("often"));
      await stop(live);
      assertEachOnce(live.text());
      await child.kill();
    }
  });

  it("ends with its sandbox, and its watchers get the end", async () => {
    const own = await Sandbox.create("python", { controller: daemon.controller });
    const process = await own.processes.start(["sleep", "1000"]);
    await Promise.all([assert.rejects(process.wait(), { code: "VMM_EXITED" }), own.kill()]);
  });

  it("is controlled over a WebSocket, and invalid messages end only that connection", async () => {
    const url = `ws+unix:${daemon.socket}:/v1/sandboxes/${sandbox.id}/processes/stream`;
    const open = async (): Promise<{ socket: WebSocket; said: unknown[]; out: () => string; closed: Promise<unknown[]> }> => {
      const socket = new WebSocket(url);
      const said: unknown[] = [];
      let out = "";
      socket.on("message", (data: Buffer, isBinary: boolean) => {
        if (isBinary) out += `${data[0] === 1 ? "" : "!"}${data.subarray(1).toString()}`;
        else said.push(JSON.parse(data.toString()));
      });
      await once(socket, "open");
      return { socket, said, out: () => out, closed: once(socket, "close") };
    };
    const cat = await open();
    cat.socket.send(JSON.stringify({ start: { args: ["sh", "-c", "cat; echo err >&2"], stdin: true, tag: "cat" } }));
    cat.socket.send(Buffer.from("over "));
    cat.socket.send(Buffer.from("the wire"));
    await until(() => cat.out() === "over the wire");
    const mistaken = await open();
    mistaken.socket.send(JSON.stringify({ attach: { process: "cat" } }));
    await until(() => mistaken.out() === "over the wire");
    mistaken.socket.send("nonsense");
    assert.equal((await mistaken.closed)[0], 1008);
    cat.socket.send(JSON.stringify({ close_stdin: true }));
    assert.equal((await cat.closed)[0], 1000);
    assert.equal(cat.out(), "over the wire!err\n");
    assert.deepEqual(cat.said.at(-1), { exit: { exit_code: 0, signal: null, timed_out: false } });

    const shell = await open();
    shell.socket.send(JSON.stringify({ start: { args: ["bash", "--norc"], terminal: { rows: 20, cols: 70 } } }));
    shell.socket.send(JSON.stringify({ resize: { rows: 21, cols: 71 } }));
    shell.socket.send(Buffer.from("stty size; sleep 1000\n"));
    await until(() => shell.out().includes("21 71"));
    // repeat the key: it may arrive before the program has started
    const typing = setInterval(() => {
      shell.socket.send(Buffer.from("\u0003"));
      shell.socket.send(Buffer.from("exit 9\n"));
    }, 500);
    await shell.closed.finally(() => clearInterval(typing));
    assert.deepEqual(shell.said.at(-1), { exit: { exit_code: 9, signal: null, timed_out: false } });

    const missing = await open();
    missing.socket.send(JSON.stringify({ attach: { process: "nothing" } }));
    assert.equal((await missing.closed)[0], 1008);
    assert.equal((missing.said[0] as { error: { code: string } }).error.code, "NOT_FOUND");
    assert.equal((await sandbox.exec(["true"])).exit_code, 0);
  });

  it("continues when a client stops reading, which is dropped after a while", async () => {
    await until(async () => (await stalled.sandbox.processes.get("stalled")).state === "ended");
    assert.equal((await stalled.sandbox.processes.get("stalled")).stdout_bytes, 5_000_000);
    stalled.hangUp();
  });

  it("survives a stop of the daemon: streams end properly, and the next daemon has the process", async () => {
    const live = await startCounter("stopped");
    await until(() => numbersIn(live.text()).length > 20);
    const rest = new SpecClient({ socketPath: daemon.socket });
    const events = await rest.open("GET", `/v1/sandboxes/${sandbox.id}/processes/stopped/output?stdout_from=now`);
    events.resume();
    const socket = new WebSocket(`ws+unix:${daemon.socket}:/v1/sandboxes/${sandbox.id}/processes/stream`);
    await once(socket, "open");
    socket.send(JSON.stringify({ attach: { process: "stopped", stdout_from: "now" } }));
    await once(socket, "message");
    const closed = once(socket, "close");
    const ended = once(events, "end");
    await daemon.down();
    assert.equal((await closed)[0], 1001);
    await ended;
    assert.ok(events.complete);
    await daemon.up();
    await until(() => numbersIn(live.text()).length > 200);
    await stop(live);
    assertEachOnce(live.text());
  });

  it("survives a killed daemon: the handle continues with the next one, without loss", async () => {
    const live = await startCounter("killed");
    await until(() => numbersIn(live.text()).length > 20);
    await daemon.kill9();
    await daemon.up();
    const known = await sandbox.processes.get("killed");
    assert.equal(known.id, live.process.id);
    const before = numbersIn(live.text()).length;
    await until(() => numbersIn(live.text()).length > before + 100);
    const cursor = live.process.cursor;
    await stop(live);
    assertEachOnce(live.text());
    const late = watched(await sandbox.processes.attach("killed", { from: cursor }));
    await until(() => late.text().endsWith("end\n"));
    assert.ok(live.text().endsWith(late.text()));
  });
});
