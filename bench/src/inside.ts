// Work inside a running sandbox, through the daemon: programs, output, files, a server, the network's rules.

import { mkdir, mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Runtime } from "@forkd/runtime";
import { Sandbox } from "forkd";
import { OwnDaemon } from "./daemon-process.ts";
import { atLeast, atMost, type Goal } from "./goals.ts";
import {
  compareExecAndEval,
  countOf,
  rawTransfers,
  requestWithoutPause,
  speedOf,
  timeEcho,
  timePolicy,
  watched,
  zeroes,
  type Calls,
  type PolicyChange,
  type Requests,
  type Transfer,
} from "./inside-load.ts";
import { HTTP_CLIENT, HTTP_PORT, HTTP_SERVER } from "./inside-programs.ts";
import { describeMachine, type Machine } from "./machine.ts";
import { IMAGE, type BenchOptions } from "./setup.ts";
import { round, type Percentiles } from "./stats.ts";

const TAG = "bench";
const MEMORY_MIB = 1024;
const MIB = 1024 * 1024;
const CONNECTIONS = 16;
/** in the folder that is copied; the rest of its bytes are in files of a mebibyte */
const SMALL_FILES = 500;
const SMALL_BYTES = 4096;
const WARM_UP_BYTES = 16 * MIB;

export type InsideReport = {
  machine: Machine;
  method: string;
  calls: Calls;
  echo_ms: Percentiles;
  files: {
    /** MiB a second */
    raw: { up: number; down: number };
    up: Transfer;
    down: Transfer;
    /** `forkd cp -r`, MiB a second */
    folder: { up: number; down: number };
  };
  requests: { proxy: Requests; guest_alone: Requests };
  policy: PolicyChange;
  goals: Goal[];
};

export type InsideOptions = BenchOptions & { rounds: number; mib: number; seconds: number };

type Context = InsideOptions & { own: OwnDaemon; sandbox: Sandbox };

export async function benchInside(opts: InsideOptions): Promise<InsideReport> {
  const { signal, progress } = opts;
  await using own = await OwnDaemon.start({ signal, progress, maxSandboxes: 10 });
  progress({ step: "Making the snapshot" });
  const warmUp = { kernels: [{ language: "python" as const, code: HTTP_SERVER }] };
  await own.controller.createSnapshot(TAG, { image: IMAGE, memoryMib: MEMORY_MIB, warmUp, signal });
  await using runtime = await Runtime.start({ home: own.homeForRuntime, signal });
  await using sandbox = await Sandbox.create(TAG, { controller: own.controller, signal });
  const context = { ...opts, own, sandbox };
  progress({ step: `${opts.rounds} calls and as many programs` });
  const calls = await compareExecAndEval(sandbox, opts.rounds, signal);
  progress({ step: `${opts.rounds} lines to a program and back` });
  const echo = await timeEcho(sandbox, opts.rounds, signal);
  const files = await measureFiles(context, runtime);
  const requests = await measureRequests(context);
  progress({ step: "The network's rules" });
  const policy = await timePolicy(sandbox, opts.rounds, signal);
  const measured = { calls, echo_ms: echo, files, requests, policy };
  return { machine: describeMachine(runtime), method: methodOf(opts), ...measured, goals: goalsOf(measured) };
}

async function measureFiles({ own, sandbox, mib, signal, progress }: Context, runtime: Runtime): Promise<InsideReport["files"]> {
  const bytes = mib * MIB;
  progress({ step: `${mib} MiB without the daemon` });
  const [fork] = await runtime.fork(await runtime.snapshots.get(TAG), { n: 1, allOrNothing: true, signal });
  const alone = fork?.sandbox;
  if (!alone) throw new Error("a fork of one has one sandbox");
  await rawTransfers(alone, WARM_UP_BYTES);
  const raw = await rawTransfers(alone, bytes);
  await alone.kill();
  progress({ step: `${mib} MiB into the sandbox and back` });
  await sandbox.files.write("/tmp/bench", zeroes(WARM_UP_BYTES), { signal });
  const up = await watched(own.pid, bytes, async () => void (await sandbox.files.write("/tmp/bench", zeroes(bytes), { signal })));
  const down = await watched(own.pid, bytes, async () => countOf(sandbox.files.readStream("/tmp/bench", { signal }), bytes));
  await sandbox.files.remove("/tmp/bench", { signal });
  return { raw, up, down, folder: await measureFolder({ own, sandbox, bytes, signal, progress }) };
}

async function measureFolder(
  context: Pick<Context, "own" | "sandbox" | "signal" | "progress"> & { bytes: number },
): Promise<InsideReport["files"]["folder"]> {
  const { own, sandbox, bytes, signal, progress } = context;
  progress({ step: "A folder into the sandbox and back" });
  const dir = await mkdtemp(join(tmpdir(), "forkd-bench-"));
  try {
    await makeFolder(join(dir, "from"), bytes);
    const up = await speedOf(bytes, async () => own.cliMs(["cp", "-r", join(dir, "from"), `${sandbox.id}:/tmp/folder`]));
    signal.throwIfAborted();
    const down = await speedOf(bytes, async () => own.cliMs(["cp", "-r", `${sandbox.id}:/tmp/folder`, join(dir, "to")]));
    await sandbox.files.remove("/tmp/folder", { recursive: true, signal });
    return { up, down };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

async function makeFolder(dir: string, bytes: number): Promise<void> {
  await mkdir(dir);
  const write = async (name: string, length: number): Promise<void> => {
    await using file = await open(join(dir, name), "wx");
    await file.write(Buffer.alloc(length, name));
  };
  for (let i = 0; i < SMALL_FILES; i++) await write(`small-${i}`, SMALL_BYTES);
  let left = bytes - SMALL_FILES * SMALL_BYTES;
  for (let i = 0; left > 0; i++, left -= MIB) await write(`large-${i}`, Math.min(MIB, left));
}

async function measureRequests({ own, sandbox, seconds, signal, progress }: Context): Promise<InsideReport["requests"]> {
  progress({ step: "Requests inside the guest" });
  const { stdout } = await sandbox.exec(["python3", "-c", HTTP_CLIENT, String(seconds), String(CONNECTIONS)], { signal });
  progress({ step: "Requests through the daemon" });
  const at = { socketPath: own.socket, path: `/v1/sandboxes/${sandbox.id}/proxy/${HTTP_PORT}/` };
  const proxy = await requestWithoutPause(at, { connections: CONNECTIONS, seconds, signal });
  return { proxy, guest_alone: { per_second: round(Number(stdout) / seconds), errors: 0 } };
}

function methodOf({ rounds, mib, seconds }: InsideOptions): string {
  return [
    `a daemon and a store of its own, one sandbox of a ${MEMORY_MIB} MiB snapshot, through the SDK over the Unix socket`,
    `medians of ${rounds} evals of 1+1 and ${rounds} runs of true, in turns of ten`,
    `${rounds} lines written to the stdin of cat until they come back on its stdout, which is more than the way of a byte that the guest writes`,
    `${mib} MiB into a file and back while the daemon's memory is read every 10 ms, against the same through the agent's channel by a runtime in this process`,
    `forkd cp -r of a folder of as much with ${SMALL_FILES} small files, the command's start included`,
    `requests of ${CONNECTIONS} kept connections without pause for ${seconds} s, by this process through the proxy to a Python server and by a client beside that server in the guest`,
    `${rounds} changes of the network's rules, from the request until a program that keeps trying is connected, and until its connection is cut`,
  ].join("; ");
}

function goalsOf({ calls, echo_ms: echo, files, requests, policy }: Omit<InsideReport, "machine" | "method" | "goals">): Goal[] {
  return [
    atMost("a program against an eval", calls.ratio, 3, "×"),
    atMost("a line to a program and back, p99", echo.p99, 20, "ms"),
    atMost("daemon's memory while a file goes in, more by", files.up.daemon_more_mib, 32, "MiB"),
    atMost("daemon's memory while a file comes out, more by", files.down.daemon_more_mib, 32, "MiB"),
    atLeast("cp -r into the sandbox, of the raw channel", round(files.folder.up / files.raw.up), 0.5, "×"),
    atLeast("cp -r out of it, of the raw channel", round(files.folder.down / files.raw.down), 0.5, "×"),
    atLeast("requests through the proxy", requests.proxy.per_second, 500, "/s"),
    atMost("requests that failed", requests.proxy.errors, 0, ""),
    atMost("a rule that allows, p99", policy.allowed_ms.p99, 50, "ms"),
    atMost("a rule that cuts, p99", policy.cut_ms.p99, 50, "ms"),
  ];
}
