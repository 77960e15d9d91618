// How long until n children have all answered, against the floor, against containers, against booting each one.

import { ForkdError } from "@forkd/daemon";
import { measureFloor } from "./floor.ts";
import { describeMachine, type Machine } from "./machine.ts";
import { measureRunc } from "./runc.ts";
import { killAll, startRuntime, warmSnapshot, type BenchOptions } from "./setup.ts";
import { median, round } from "./stats.ts";

import type { Runtime, Snapshot } from "@forkd/daemon";

const EXPRESSION = "numpy.zeros(5).tolist()";
const MEMORY_MIB = 256;
const WARM_UP_CHILDREN = 5;

export type FanoutReport = {
  machine: Machine;
  method: string;
  n: number;
  parallelism: number;
  forkd_ms: number;
  forkd_pooled_ms: number;
  floor_ms: number;
  runc_ms: number | null;
  /** why runc_ms is null */
  runc_skipped: string | null;
  /** one boot to numpy answering */
  cold_boot_ms: number;
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
    progress({ step: `forkd: ${n} children` });
    const plain = await fanOut(runtime, snapshot, n, signal);
    const usage = await Promise.all(runtime.sandboxes.map(async (sandbox) => sandbox.memoryUsage()));
    await killAll(runtime);
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
      forkd_pooled_ms: round(pooled.ms),
      floor_ms: round(floorMs),
      runc_ms: "ms" in runc ? round(runc.ms) : null,
      runc_skipped: "ms" in runc ? null : runc.skipped,
      cold_boot_ms: round(timings.bootMs + timings.warmUpMs),
      private_mib_per_child: round(median(usage.map((item) => item.privateGuestBytes)) / 1024 ** 2),
      pss_mib_per_child: round(median(usage.map((item) => item.pssBytes)) / 1024 ** 2),
      failed: plain.failed + pooled.failed,
    };
  } finally {
    await killAll(runtime);
    await runtime.removeSnapshot(snapshot.manifest.tag);
  }
}

/** Forks n children and asks each as soon as it is there */
async function fanOut(runtime: Runtime, snapshot: Snapshot, n: number, signal: AbortSignal): Promise<{ ms: number; failed: number }> {
  const began = performance.now();
  const answers = await Promise.all(
    Array.from({ length: n }, async () => {
      try {
        const sandbox = await runtime.forkOne(snapshot, { signal });
        return (await sandbox.eval(EXPRESSION, { timeoutMs: 60_000 })).text;
      } catch (error) {
        if (error instanceof ForkdError && !signal.aborted) return error.message;
        throw error;
      }
    }),
  );
  return { ms: performance.now() - began, failed: answers.filter((answer) => answer !== "[0.0, 0.0, 0.0, 0.0, 0.0]").length };
}
