// Time until n children have all answered, compared with the floor, with containers, and with a boot of each.

import { readdir, readFile } from "node:fs/promises";
import { ForkdError } from "@forkd/runtime";
import { measureFloor } from "./floor.ts";
import { describeMachine, type Machine } from "./machine.ts";
import { measureRunc } from "./runc.ts";
import { killAll, startRuntime, warmSnapshot, type BenchOptions } from "./setup.ts";
import { median, percentiles, round, type Percentiles } from "./stats.ts";

import type { ForkOutcome, Runtime, Snapshot } from "@forkd/runtime";

const EXPRESSION = "numpy.zeros(5).tolist()";
const ANSWER = "[0.0, 0.0, 0.0, 0.0, 0.0]";
const MEMORY_MIB = 256;
const WARM_UP_CHILDREN = 5;
const ONE_BY_ONE = 30;

export type FanoutReport = {
  machine: Machine;
  method: string;
  n: number;
  parallelism: number;
  /** one request for all of them, on a snapshot that was never cloned */
  forkd_ms: number;
  /** the same, when there is a VMM to clone; null: children are restored here */
  clone_ms: number | null;
  /** each child loads the snapshot */
  restore_ms: number;
  forkd_pooled_ms: number;
  floor_ms: number;
  runc_ms: number | null;
  /** why runc_ms is null */
  runc_skipped: string | null;
  /** one boot to numpy answering */
  cold_boot_ms: number;
  /** CPU time of a child's VMM until it had answered */
  clone_cpu_ms: number | null;
  restore_cpu_ms: number;
  /** one request for one child at a time, until it has answered */
  one_ms: Percentiles;
  private_mib_per_child: number;
  pss_mib_per_child: number;
  failed: number;
};

export async function benchFanout(opts: BenchOptions & { n: number; parallelism: number }): Promise<FanoutReport> {
  const { n, parallelism, progress, signal } = opts;
  await using runtime = await startRuntime(opts);
  const { snapshot, timings } = await warmSnapshot(runtime, MEMORY_MIB, opts);
  try {
    await fanOut(runtime, snapshot, WARM_UP_CHILDREN, signal);
    await killAll(runtime);
    progress({ step: `Floor: ${n} children by a minimal driver` });
    const floorMs = await measureFloor(runtime, snapshot, { n, parallelism, code: EXPRESSION });
    progress({ step: `forkd: ${n} restored children` });
    const restored = await fanOut(runtime, snapshot, n, signal);
    const restoreCpuMs = await cpuMsPerChild(runtime);
    await killAll(runtime);
    progress({ step: `forkd: ${n} children` });
    const plain = await request(runtime, snapshot, n, signal);
    await killAll(runtime);
    progress({ step: `forkd: ${n} clones` });
    const cloned = await request(runtime, snapshot, n, signal);
    const cloneCpuMs = await cpuMsPerChild(runtime);
    const areClones = runtime.sandboxes.some(({ vm }) => vm.startedBy === "clone");
    const usage = await Promise.all(runtime.sandboxes.map(async (sandbox) => sandbox.memoryUsage()));
    await killAll(runtime);
    progress({ step: `forkd: ${ONE_BY_ONE} children, one after another` });
    const oneByOne = await askOneByOne(runtime, snapshot, signal);
    progress({ step: `forkd: ${n} children from the pool` });
    await runtime.pool.resize(snapshot, n);
    const pooled = await fanOut(runtime, snapshot, n, signal);
    await runtime.pool.resize(snapshot, 0);
    await killAll(runtime);
    progress({ step: `runc: ${n} containers` });
    const runc = await measureRunc(runtime, snapshot, { n, parallelism, expression: EXPRESSION, signal });
    return {
      machine: describeMachine(runtime),
      method: `wall time until all ${n} have answered ${EXPRESSION}, ${parallelism} started at a time; ${MEMORY_MIB} MiB guests; one run each, one after another`,
      n,
      parallelism,
      forkd_ms: round(plain.ms),
      clone_ms: areClones ? round(cloned.ms) : null,
      restore_ms: round(restored.ms),
      forkd_pooled_ms: round(pooled.ms),
      floor_ms: round(floorMs),
      runc_ms: "ms" in runc ? round(runc.ms) : null,
      runc_skipped: "ms" in runc ? null : runc.skipped,
      cold_boot_ms: round(timings.bootMs + timings.warmUpMs),
      clone_cpu_ms: areClones ? cloneCpuMs : null,
      restore_cpu_ms: restoreCpuMs,
      one_ms: percentiles(oneByOne),
      private_mib_per_child: round(median(usage.map((item) => item.privateGuestBytes)) / 1024 ** 2),
      pss_mib_per_child: round(median(usage.map((item) => item.pssBytes)) / 1024 ** 2),
      failed: restored.failed + plain.failed + cloned.failed + pooled.failed,
    };
  } finally {
    await killAll(runtime);
    await runtime.removeSnapshot(snapshot.manifest.tag);
  }
}

/** CPU time of the VMMs that run, all threads, in ms for each */
async function cpuMsPerChild(runtime: Runtime): Promise<number> {
  const ofThread = async (path: string): Promise<number> => {
    const text = await readFile(`${path}/schedstat`, "utf8").catch((error: NodeJS.ErrnoException) => {
      // a worker of QEMU has ended since it was listed; those do disk I/O and use hardly any CPU time
      if (error.code === "ENOENT" || error.code === "ESRCH") return "0";
      throw error;
    });
    return Number(text.split(" ")[0]) / 1e6;
  };
  const ofOne = async (pid: number): Promise<number> => {
    const threads = await readdir(`/proc/${pid}/task`);
    const spent = await Promise.all(threads.map(async (tid) => ofThread(`/proc/${pid}/task/${tid}`)));
    return spent.reduce((sum, ms) => sum + ms, 0);
  };
  return median(await Promise.all(runtime.sandboxes.map(async ({ vm }) => ofOne(vm.pid))));
}

async function askOneByOne(runtime: Runtime, snapshot: Snapshot, signal: AbortSignal): Promise<number[]> {
  const times: number[] = [];
  for (let at = 0; at < ONE_BY_ONE; at++) {
    const { ms } = await request(runtime, snapshot, 1, signal);
    times.push(ms);
    await killAll(runtime);
  }
  return times;
}

/** One request for n children, which are asked when it is answered */
async function request(runtime: Runtime, snapshot: Snapshot, n: number, signal: AbortSignal): Promise<{ ms: number; failed: number }> {
  const began = performance.now();
  const outcomes = await runtime.fork(snapshot, { n, signal });
  const ask = async ({ sandbox }: ForkOutcome): Promise<boolean> =>
    (await sandbox?.eval(EXPRESSION, { timeoutMs: 60_000 }))?.text === ANSWER;
  const answers = await Promise.all(outcomes.map(ask));
  return { ms: performance.now() - began, failed: answers.filter((isRight) => !isRight).length };
}

/** Restores n children and asks each as soon as it is there */
async function fanOut(runtime: Runtime, snapshot: Snapshot, n: number, signal: AbortSignal): Promise<{ ms: number; failed: number }> {
  const began = performance.now();
  const answers = await Promise.all(
    Array.from({ length: n }, async () => {
      try {
        const sandbox = await runtime.forkOne(snapshot, { restored: true, signal });
        return (await sandbox.eval(EXPRESSION, { timeoutMs: 60_000 })).text;
      } catch (error) {
        if (error instanceof ForkdError && !signal.aborted) return error.message;
        throw error;
      }
    }),
  );
  return { ms: performance.now() - began, failed: answers.filter((answer) => answer !== ANSWER).length };
}
