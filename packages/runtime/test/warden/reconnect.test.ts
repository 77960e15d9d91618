// Clients of a warden at a socket: the state that remains after a disconnect, and that the next client finds.

import assert from "node:assert/strict";
import { execFileSync, spawn as spawnChild } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { until } from "../../../../tests/helpers/until.ts";
import type { Capture, VmmProcess } from "../../src/warden/warden.ts";
import { startTimeOf } from "../../src/util/process-id.ts";
import { isAlive, isPending, listenOptions, makeBase, MIB, Scratch, shell, startTarget, type Target } from "./target.ts";

/** Number of the call in which sleep(1) waits */
const CLOCK_NANOSLEEP = 230;
const RAM = 8 * MIB;
const SLEEP = "exec sleep 1000";

/** A client process that starts a warden and a child, and prints their pids */
const CLIENT = `
  const [module, options, spec] = process.argv.slice(1);
  const { Warden } = await import(module);
  const warden = await Warden.connect(JSON.parse(options));
  const { pid, startTime } = await warden.spawn(JSON.parse(spec));
  const info = await warden.info();
  console.log(JSON.stringify({ pid, startTime, warden: info.pid, adopted: warden.adopted }));
`;

async function begin(scratch: Scratch, target: Target): Promise<{ capture: Capture; delta: string }> {
  const delta = scratch.path("delta");
  const request = { pid: target.process.pid, ramPath: target.base, ramBytes: RAM, deltaPath: delta };
  return { capture: await scratch.warden.captureBegin(request), delta };
}

/** Waits until the warden has reaped the process */
async function reaped(pid: number): Promise<void> {
  await until(() => !existsSync(`/proc/${pid}`));
}

/** Whether the warden runs no FLATTEN or TRIM job */
function isWithoutJobs(wardenPid: number): boolean {
  const names = readdirSync(`/proc/${wardenPid}/task`).map((task) => {
    try {
      return readFileSync(`/proc/${wardenPid}/task/${task}/comm`, "utf8").trim();
    } catch {
      return "ended meanwhile";
    }
  });
  return !names.includes("job");
}

test("it survives a killed client, and the next one takes over the children", async () => {
  await using scratch = await Scratch.listening();
  await scratch.warden.end();
  const module = join(import.meta.dirname, "../../src/warden/warden.ts");
  const words = [module, JSON.stringify(listenOptions(scratch.dir)), JSON.stringify(shell(scratch, SLEEP))];
  const client = spawnChild(process.execPath, ["--input-type=module", "--eval", CLIENT, ...words], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(createInterface({ input: client.stdout }), "line")) as [string];
  const said = JSON.parse(line) as { pid: number; startTime: string; warden: number; adopted: boolean };
  assert.equal(said.adopted, false);
  client.kill("SIGKILL");
  await once(client, "exit");

  const warden = await scratch.connect();
  assert.deepEqual([warden.adopted, (await warden.info()).pid], [true, said.warden]);
  assert.deepEqual(await warden.list(), [{ pid: said.pid, startTime: said.startTime, running: true }]);
  assert.equal(said.startTime, await startTimeOf(said.pid));
  const child = warden.adopt(said.pid, said.startTime);
  assert.equal(await isPending(child.exited), true);
  await child.kill();
  assert.deepEqual(await child.exited, { code: null, signal: "SIGTERM" });
  await child.kill("SIGKILL");
  assert.deepEqual(await warden.list(), []);
});

test("it keeps no descriptor of its starter, and its children none of the warden's", async () => {
  await using scratch = await Scratch.listening();
  const child = await scratch.warden.spawn(shell(scratch, SLEEP));
  const { pid } = await scratch.warden.info();
  // pid, name, state, ppid, process group, session
  assert.deepEqual(readFileSync(`/proc/${pid}/stat`, "utf8").split(" ").slice(4, 6), [String(pid), String(pid)]);
  assert.deepEqual(
    [0, 1, 2].map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`)),
    ["/dev/null", "/dev/null", listenOptions(scratch.dir).log],
  );
  assert.equal(readlinkSync(`/proc/${pid}/cwd`), "/");
  // not before it sleeps: while it starts, it has its libraries open for a moment
  await until(() => readFileSync(`/proc/${child.pid}/syscall`, "utf8").startsWith(`${CLOCK_NANOSLEEP} `));
  assert.deepEqual(readdirSync(`/proc/${child.pid}/fd`).toSorted(), ["0", "1", "2"]);
});

test("a client that disconnects leaves the children, and gets no more events", async () => {
  await using scratch = await Scratch.listening();
  const first = scratch.warden;
  const child = await first.spawn(shell(scratch, SLEEP));
  await Promise.all([first.disconnect(), first.disconnect()]);
  await assert.rejects(first.info(), { code: "WARDEN_FAILED" });
  await assert.rejects(child.kill(), { code: "WARDEN_FAILED" });
  await first.close();
  assert.equal(isAlive(child.pid), true);
  assert.deepEqual([await isPending(child.exited), await isPending(first.lost)], [true, true]);
});

test("the exits of children without a client are kept, and reported once", async () => {
  await using scratch = await Scratch.listening();
  const code = await scratch.warden.spawn(shell(scratch, "while [ ! -e go ]; do sleep 0.01; done; exit 7"));
  const signal = await scratch.warden.spawn(shell(scratch, "while [ ! -e go ]; do sleep 0.01; done; kill -9 $$"));
  await scratch.warden.disconnect();
  writeFileSync(join(scratch.dir, "go"), "");
  await reaped(code.pid);
  await reaped(signal.pid);
  const warden = await scratch.connect();
  assert.deepEqual(
    (await warden.list()).toSorted((a, b) => Number(b.exit?.code) - Number(a.exit?.code)),
    [
      { pid: code.pid, startTime: code.startTime, running: false, exit: { code: 7, signal: null } },
      { pid: signal.pid, startTime: signal.startTime, running: false, exit: { code: null, signal: "SIGKILL" } },
    ],
  );
  assert.deepEqual(await warden.list(), []);
  assert.throws(() => warden.adopt(code.pid, code.startTime), { code: "NOT_FOUND" });
});

test("no exit is lost between connecting, listing and adopting", async () => {
  await using scratch = await Scratch.listening();
  const [early, late] = [await scratch.warden.spawn(shell(scratch, SLEEP)), await scratch.warden.spawn(shell(scratch, SLEEP))];
  await scratch.warden.disconnect();
  const warden = await scratch.connect();
  process.kill(early.pid, "SIGKILL");
  await reaped(early.pid);
  const children = await warden.list();
  assert.deepEqual(
    children.map(({ pid, running }) => [pid, running]),
    [
      [late.pid, true],
      [early.pid, false],
    ],
  );
  process.kill(late.pid, "SIGTERM");
  await reaped(late.pid);
  // messages sent before this answer have been received
  await warden.info();
  assert.deepEqual(await warden.adopt(late.pid, late.startTime).exited, { code: null, signal: "SIGTERM" });
  assert.throws(() => warden.adopt(late.pid, "1"), { code: "NOT_FOUND" });
});

test("a new client replaces the connected one", async () => {
  await using scratch = await Scratch.listening();
  const first = scratch.warden;
  const child = await first.spawn(shell(scratch, SLEEP));
  const second = await scratch.connect();
  assert.match(await first.lost, /closed|ECONNRESET|EPIPE/);
  await assert.rejects(first.info(), { code: "WARDEN_FAILED" });
  await child.exited;
  assert.deepEqual(await second.list(), [{ pid: child.pid, startTime: child.startTime, running: true }]);
  assert.equal(isAlive(child.pid), true);
  assert.equal(await isPending(second.lost), true);
});

test("an adopted child can be captured", async () => {
  await using scratch = await Scratch.listening();
  const target = await startTarget(scratch, makeBase(scratch, RAM, MIB), RAM);
  await target.tell("fill 3 50 1");
  await scratch.warden.disconnect();
  await scratch.connect();
  await scratch.warden.list();
  const adopted = { ...target, process: scratch.warden.adopt(target.process.pid, target.process.startTime) };
  const { capture, delta } = await begin(scratch, adopted);
  await target.tell("fill 100 5 2");
  assert.deepEqual((await capture.finish()).pages, 55);
  await capture.commit();
  const [dump, out] = [scratch.path("dump"), scratch.path("flat")];
  await target.tell(`dump ${dump}`);
  await scratch.warden.flatten({ base: target.base, deltas: [delta], out });
  assert.ok(readFileSync(out).equals(readFileSync(dump)), "the image differs from the memory");
});

type UnderWay = {
  /** Files that are removed with the client */
  unfinished: string[];
  /** Files whose completion was reported to the client */
  told: string[];
  /** Delta and base of a snapshot */
  delta: string;
  base: string;
  child: VmmProcess;
  /** Some of the work blocks until a writer opens it */
  fifo: string;
};

/** Starts captures at each step, and complete and incomplete images */
async function beginMuch(scratch: Scratch): Promise<UnderWay> {
  const { warden } = scratch;
  const target = await startTarget(scratch, makeBase(scratch, RAM, MIB), RAM);
  await target.tell("fill 3 50 1");
  const committed = await begin(scratch, target);
  await committed.capture.finish();
  await committed.capture.commit();
  const [begun, finished] = [await begin(scratch, target), await begin(scratch, target)];
  await finished.capture.finish();
  const flat = scratch.path("flat");
  await warden.flatten({ base: target.base, deltas: [committed.delta], out: flat });
  // reading a FIFO blocks until it has a writer, so these jobs outlive the client
  const fifo = scratch.path("fifo");
  execFileSync("mkfifo", [fifo]);
  const endless = [scratch.path("flat"), scratch.path("flat")];
  for (const out of endless) void warden.flatten({ base: fifo, deltas: [], out }).catch(() => undefined);
  return {
    unfinished: [begun.delta, finished.delta, ...endless],
    told: [committed.delta, flat],
    delta: committed.delta,
    base: target.base,
    child: await warden.spawn(shell(scratch, SLEEP)),
    fifo,
  };
}

function present(paths: string[]): string[] {
  return paths.filter((path) => existsSync(path));
}

async function assertOnlyToldStays(scratch: Scratch, { unfinished, told, delta, base, child, fifo }: UnderWay): Promise<void> {
  const { warden } = scratch;
  assert.deepEqual(present(unfinished), []);
  const writer = openSync(fifo, "r+");
  const { pid } = await warden.info();
  await until(() => isWithoutJobs(pid));
  closeSync(writer);
  assert.deepEqual(present(unfinished), []);
  assert.deepEqual(present(told), told);
  assert.equal(isAlive(child.pid), true);
  // the names can be used again
  for (const out of unfinished) await warden.flatten({ base, deltas: [delta], out });
  assert.deepEqual(present(unfinished), unfinished);
}

test("unfinished files of a disconnected client are removed, and finished ones stay", async () => {
  await using scratch = await Scratch.listening();
  const underWay = await beginMuch(scratch);
  await scratch.warden.disconnect();
  await scratch.connect();
  await assertOnlyToldStays(scratch, underWay);
});

test("unfinished files of a replaced client are removed, and the next client gets none of its answers", async () => {
  await using scratch = await Scratch.listening();
  const first = scratch.warden;
  const underWay = await beginMuch(scratch);
  const base = makeBase(scratch, 64 * MIB, 64 * MIB);
  const outs = Array.from({ length: 12 }, () => scratch.path("flat"));
  const flattens = Promise.allSettled(outs.map(async (out) => first.flatten({ base, deltas: [], out })));
  const second = await scratch.connect();
  // reuses request ids of the first client, some of whose requests are still running
  const answers = await Promise.all(Array.from({ length: 40 }, async () => second.info()));
  assert.equal(new Set(answers.map((answer) => JSON.stringify(answer))).size, 1);
  await assertOnlyToldStays(scratch, underWay);
  const told = (await flattens).map(({ status }) => status === "fulfilled");
  assert.deepEqual(
    present(outs),
    outs.filter((_, at) => told[at]),
  );
});

/** A client of the socket that can violate the protocol */
async function rawClient(scratch: Scratch): Promise<Socket> {
  const socket = connect(listenOptions(scratch.dir).socket);
  await once(socket, "connect");
  return socket;
}

test("a client that sends invalid messages is dropped, and the children stay", async () => {
  await using scratch = await Scratch.listening();
  const child = await scratch.warden.spawn(shell(scratch, SLEEP));
  const raw = await rawClient(scratch);
  raw.resume();
  raw.write(Buffer.from("ffffffff0000", "hex"));
  await once(raw, "close");
  const warden = await scratch.connect();
  assert.equal((await warden.list()).length, 1);
  assert.equal(isAlive(child.pid), true);
  assert.match(readFileSync(listenOptions(scratch.dir).log, "utf8"), /dropped: message of 4294967295 bytes/);
});

test("a client that does not read is dropped before its queue grows large", async () => {
  await using scratch = await Scratch.listening();
  const child = await scratch.warden.spawn(shell(scratch, SLEEP));
  const raw = await rawClient(scratch);
  const failed = once(raw, "error");
  const info = Buffer.from("050000000801000000", "hex");
  const many = Buffer.concat(Array.from({ length: 2000 }, () => info));
  const flood = async (): Promise<void> => {
    while (!raw.destroyed) await new Promise<void>((resolve) => raw.write(many, () => resolve()));
  };
  await Promise.all([failed, flood()]);
  assert.equal((await (await scratch.connect()).list()).length, 1);
  assert.equal(isAlive(child.pid), true);
  assert.match(readFileSync(listenOptions(scratch.dir).log, "utf8"), /does not read/);
});
