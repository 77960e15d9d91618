// What a gateway adds to a fork and to an eval, against the same daemon over TCP, in one run.

import { Runtime } from "@forkd/runtime";
import { Controller } from "forkd";
import { OwnDaemon } from "./daemon-process.ts";
import { OwnGateway } from "./gateway-process.ts";
import { atMost, type Goal } from "./goals.ts";
import { describeMachine, type Machine } from "./machine.ts";
import { IMAGE, type BenchOptions } from "./setup.ts";
import { median, percentiles, type Percentiles } from "./stats.ts";
import { inTurns } from "./turns.ts";

const TAG = "bench";
const MEMORY_MIB = 256;
const WARM_UP = 10;
const CALL_TIMEOUT_MS = 120_000;

/** `added`: median of the differences between neighbours, which see the same machine */
export type Added = { direct: Percentiles; through: Percentiles; added: number };

export type GatewayReport = { machine: Machine; method: string; eval_ms: Added; fork_ms: Added; goals: Goal[] };

export type GatewayBenchOptions = BenchOptions & { evals: number; forks: number };

export async function benchGateway(opts: GatewayBenchOptions): Promise<GatewayReport> {
  const { evals, forks, signal, progress } = opts;
  await using gateway = await OwnGateway.prepare();
  await using own = await OwnDaemon.start({ signal, progress, maxSandboxes: 20, bind: "127.0.0.1:0", clusterKeyFile: gateway.keyFile });
  progress({ step: "Making the snapshot" });
  await own.controller.createSnapshot(TAG, { image: IMAGE, memoryMib: MEMORY_MIB, signal });
  const { token } = await own.controller.createToken(TAG, { scope: "exec", signal });
  await gateway.up(own.url);
  const direct = new Controller({ url: own.url, token, timeoutMs: CALL_TIMEOUT_MS });
  const through = new Controller({ url: gateway.url, token: gateway.token, timeoutMs: CALL_TIMEOUT_MS });
  progress({ step: `${evals} evals by each way` });
  const [sandbox] = await through.spawnSandboxes(TAG);
  const id = sandbox?.id ?? "";
  const evaluate = async (forkd: Controller): Promise<number> => {
    const began = performance.now();
    await forkd.evalCode(id, "1");
    return performance.now() - began;
  };
  const byEval = await compare({ direct, through }, evaluate, { rounds: evals, signal });
  progress({ step: `${forks} forks by each way` });
  const fork = async (forkd: Controller): Promise<number> => {
    const began = performance.now();
    const [child] = await forkd.spawnSandboxes(TAG);
    const ms = performance.now() - began;
    await forkd.killSandbox(child?.id ?? "");
    return ms;
  };
  const byFork = await compare({ direct, through }, fork, { rounds: forks, signal });
  await using runtime = await Runtime.start({ home: own.homeForRuntime, signal });
  const goals = [atMost("added to an eval, p50", byEval.added, 1, "ms"), atMost("added to a fork, p50", byFork.added, 3, "ms")];
  return { machine: describeMachine(runtime), method: methodOf(opts), eval_ms: byEval, fork_ms: byFork, goals };
}

async function compare(
  { direct, through }: Record<"direct" | "through", Controller>,
  time: (forkd: Controller) => Promise<number>,
  opts: { rounds: number; signal: AbortSignal },
): Promise<Added> {
  const sides = { direct: async () => time(direct), through: async () => time(through) };
  const times = await inTurns(sides, { ...opts, warmUp: WARM_UP });
  const differences = times.through.map((ms, at) => ms - (times.direct[at] ?? ms));
  return { direct: percentiles(times.direct), through: percentiles(times.through), added: median(differences) };
}

function methodOf({ evals, forks }: GatewayBenchOptions): string {
  return [
    `a daemon with a store of its own and a gateway before it, each a process, a ${MEMORY_MIB} MiB snapshot, the SDK forkd over TCP at loopback addresses with kept-alive connections, in this process`,
    `one eval of "1" directly and one through the gateway in turns, the first alternating, ${evals} of each in one sandbox`,
    `${forks} forks of one child of each in the same way; the child is ended before the next`,
    "added: the median of the differences between neighbours",
  ].join("; ");
}
