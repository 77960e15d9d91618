// The load of the daemon benchmark, the same for a daemon and for a runtime in this process.

import { readFile } from "node:fs/promises";
import { Agent, get } from "node:http";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError } from "@forkd/runtime";
import { median, round } from "./stats.ts";
import { inTurns } from "./turns.ts";

import type { Runtime, Snapshot } from "@forkd/runtime";
import type { OwnDaemon } from "./daemon-process.ts";

const EXPRESSION = "1+1";
const ANSWER = 2;
/** time to live of sandboxes, in case this process is killed and cannot end them */
const TTL_SECS = 3600;
const TIMEOUT_SECS = 60;
/** how long the machine is idle before the idle measurement */
const SETTLE_MS = 3000;
/** ticks of /proc/PID/stat are hundredths of a second on all supported systems */
const TICK_MS = 10;

/** A sandbox of the daemon or of the runtime */
export type Child = { pid: number; eval: () => Promise<unknown>; kill: () => Promise<unknown> };

/** The daemon or the runtime */
export type Side = { fork: (n: number) => Promise<Child[]> };

/** Medians of the daemon and of the runtime, and their difference */
export type Compared = { daemon: number; runtime: number; difference: number; ratio: number };

export function daemonSide({ controller }: OwnDaemon, tag: string, signal: AbortSignal): Side {
  return {
    fork: async (n) =>
      (await controller.spawnSandboxes(tag, { n, ttlSecs: TTL_SECS, signal })).map(({ id, pid }) => ({
        pid: pid ?? 0,
        eval: async () => (await controller.evalCode(id, EXPRESSION, { timeoutSecs: TIMEOUT_SECS, signal })).value,
        kill: async () => controller.killSandbox(id),
      })),
  };
}

export function runtimeSide(runtime: Runtime, snapshot: Snapshot, signal: AbortSignal): Side {
  return {
    fork: async (n) =>
      (await runtime.fork(snapshot, { n, allOrNothing: true, signal })).flatMap(({ sandbox }) =>
        sandbox
          ? {
              pid: sandbox.vm.pid,
              eval: async () => (await sandbox.eval(EXPRESSION, { timeoutMs: TIMEOUT_SECS * 1000, signal })).json,
              kill: async () => sandbox.kill(),
            }
          : [],
      ),
  };
}

export type Sides = { daemon: Side; runtime: Side };

/** Forks a sandbox, evals, and ends it, alternating between both sides */
export async function compareForks(
  sides: Sides,
  rounds: number,
  signal: AbortSignal,
): Promise<{ fork: Compared; answered: Compared; kill: Compared }> {
  const forkOne = async (side: Side): Promise<{ fork: number; answered: number; kill: number }> => {
    const began = performance.now();
    const [child] = await side.fork(1);
    const forked = performance.now();
    await ask(child);
    const answered = performance.now();
    await child?.kill();
    return { fork: forked - began, answered: answered - began, kill: performance.now() - answered };
  };
  const times = await inTurns(
    { daemon: async () => forkOne(sides.daemon), runtime: async () => forkOne(sides.runtime) },
    { rounds, signal },
  );
  const of = (what: "fork" | "answered" | "kill"): Compared =>
    compare(
      times.daemon.map((time) => time[what]),
      times.runtime.map((time) => time[what]),
    );
  return { fork: of("fork"), answered: of("answered"), kill: of("kill") };
}

export async function compareEvals(sides: Sides, rounds: number, signal: AbortSignal): Promise<Compared> {
  const [ofDaemon] = await sides.daemon.fork(1);
  const [ofRuntime] = await sides.runtime.fork(1);
  try {
    const timed = async (child: Child | undefined): Promise<number> => {
      const began = performance.now();
      await ask(child);
      return performance.now() - began;
    };
    const sidesOf = { daemon: async () => timed(ofDaemon), runtime: async () => timed(ofRuntime) };
    const times = await inTurns(sidesOf, { rounds, signal });
    return compare(times.daemon, times.runtime);
  } finally {
    await Promise.all([ofDaemon?.kill(), ofRuntime?.kill()]);
  }
}

/** Creates n and evals in each; the time ends with the last answer */
export async function makeMany(side: Side, n: number): Promise<{ children: Child[]; ms: number }> {
  const began = performance.now();
  const children = await side.fork(n);
  await Promise.all(children.map(ask));
  return { children, ms: performance.now() - began };
}

export async function killAllOf(children: readonly Child[]): Promise<void> {
  await Promise.all(children.map(async (child) => child.kill()));
}

export type Throughput = { evals: number; errors: number; perSecond: number };

/** Each sandbox gets its next eval as soon as it has answered */
export async function askWithoutPause(children: readonly Child[], seconds: number, signal: AbortSignal): Promise<Throughput> {
  const began = performance.now();
  const count = { evals: 0, errors: 0 };
  const worker = async (child: Child): Promise<void> => {
    while (performance.now() - began < seconds * 1000) {
      signal.throwIfAborted();
      try {
        await ask(child);
        count.evals++;
      } catch (error) {
        signal.throwIfAborted();
        // errors of both sides have a code; an error without one is a fault of this benchmark
        if (typeof (error as { code?: unknown }).code !== "string") throw error;
        count.errors++;
      }
    }
  };
  await Promise.all(children.map(worker));
  return { ...count, perSecond: round((count.evals * 1000) / (performance.now() - began)) };
}

/** CPU time during that period, in percent of one core, for each group of processes */
export async function idleCpu<K extends string>(
  groups: Record<K, readonly number[]>,
  seconds: number,
  signal: AbortSignal,
): Promise<Record<K, number>> {
  const names = Object.keys(groups) as K[];
  const measure = async (): Promise<number[]> => Promise.all(names.map(async (name) => sum(await Promise.all(groups[name].map(cpuMsOf)))));
  await sleep(SETTLE_MS, undefined, { signal });
  const began = performance.now();
  const before = await measure();
  await sleep(seconds * 1000, undefined, { signal });
  const after = await measure();
  const ms = performance.now() - began;
  const percents = names.map((name, i) => [name, round((((after[i] ?? 0) - (before[i] ?? 0)) / ms) * 100)]);
  return Object.fromEntries(percents) as Record<K, number>;
}

export async function rssMibOf(pid: number): Promise<number> {
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, "utf8"))?.[1];
  return round(Number(kib ?? Number.NaN) / 1024);
}

/** The list as the SDK gives it, and its bytes alone */
export async function timeLists(daemon: OwnDaemon, rounds: number, expected: number): Promise<{ sdkMs: number; rawMs: number }> {
  const agent = new Agent({ keepAlive: true });
  const sdk: number[] = [];
  const raw: number[] = [];
  try {
    for (let i = 0; i < rounds; i++) {
      const began = performance.now();
      const { length } = await daemon.controller.listSandboxes();
      const between = performance.now();
      await rawList(daemon.socket, agent);
      raw.push(performance.now() - between);
      sdk.push(between - began);
      if (length !== expected) throw new ForkdError("FORK_FAILED", `The list has ${length} sandboxes instead of ${expected}.`);
    }
  } finally {
    agent.destroy();
  }
  return { sdkMs: median(sdk), rawMs: median(raw) };
}

export async function timeCli(daemon: OwnDaemon, args: readonly string[], rounds: number, signal: AbortSignal): Promise<number> {
  const times: number[] = [];
  for (let i = -1; i < rounds; i++) {
    signal.throwIfAborted();
    const ms = await daemon.cliMs(args);
    // the first call may include compilation
    if (i >= 0) times.push(ms);
  }
  return median(times);
}

async function rawList(socketPath: string, agent: Agent): Promise<string> {
  return new Promise((resolve, reject) => {
    get({ socketPath, agent, path: "/v1/sandboxes", headers: { host: "forkd" } }, (response) => {
      text(response).then(resolve, reject);
    }).once("error", reject);
  });
}

async function ask(child: Child | undefined): Promise<void> {
  const answer = await child?.eval();
  if (answer !== ANSWER) throw new ForkdError("FORK_FAILED", `A sandbox answered ${JSON.stringify(answer)}.`);
}

function compare(ofDaemon: readonly number[], ofRuntime: readonly number[]): Compared {
  const daemon = median(ofDaemon);
  const runtime = median(ofRuntime);
  return { daemon, runtime, difference: round(daemon - runtime), ratio: round(daemon / runtime) };
}

async function cpuMsOf(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  // utime and stime, fields 14 and 15
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
