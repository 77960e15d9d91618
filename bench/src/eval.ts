// A warm eval, compared with a fresh interpreter in the same sandbox.

import { describeMachine, type Machine } from "./machine.ts";
import { killAll, startRuntime, warmSnapshot, type BenchOptions } from "./setup.ts";
import { percentiles, type Percentiles } from "./stats.ts";

const EXPRESSION = "numpy.zeros(5).tolist()";
const MEMORY_MIB = 256;

export type EvalReport = {
  machine: Machine;
  method: string;
  rounds: number;
  first_eval_ms: number;
  eval_ms: Percentiles;
  exec_true_ms: Percentiles;
  exec_python_ms: Percentiles;
};

export async function benchEval(opts: BenchOptions & { rounds: number }): Promise<EvalReport> {
  await using runtime = await startRuntime(opts);
  const { snapshot } = await warmSnapshot(runtime, MEMORY_MIB, opts);
  try {
    const sandbox = await runtime.forkOne(snapshot, { signal: opts.signal });
    const evaluate = async (): Promise<void> => void (await sandbox.eval(EXPRESSION, { timeoutMs: 60_000 }));
    const [firstEvalMs = Number.NaN] = await times(1, evaluate);
    opts.progress({ step: "eval in the warm kernel" });
    const evals = await times(opts.rounds, evaluate);
    opts.progress({ step: "exec of true" });
    const execTrue = await times(opts.rounds, async () => void (await sandbox.exec(["true"], { timeoutMs: 60_000 })));
    opts.progress({ step: "exec of a fresh python3" });
    const execPython = await times(
      Math.max(3, Math.ceil(opts.rounds / 10)),
      async () => void (await sandbox.exec(["python3", "-c", `import numpy; print(${EXPRESSION})`], { timeoutMs: 120_000 })),
    );
    return {
      machine: describeMachine(runtime),
      method: `one sandbox; ${opts.rounds} evals of ${EXPRESSION} after the first, then as many execs of true, then a tenth as many of python3 -c with import numpy`,
      rounds: opts.rounds,
      first_eval_ms: firstEvalMs,
      eval_ms: percentiles(evals),
      exec_true_ms: percentiles(execTrue),
      exec_python_ms: percentiles(execPython),
    };
  } finally {
    await killAll(runtime);
    await runtime.removeSnapshot(snapshot.manifest.tag);
  }
}

async function times(rounds: number, work: () => Promise<void>): Promise<number[]> {
  const measured: number[] = [];
  for (let i = 0; i < rounds; i++) {
    const began = performance.now();
    await work();
    measured.push(performance.now() - began);
  }
  return measured;
}
