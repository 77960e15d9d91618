// Overhead of the daemon: its part of a fork and of an eval, its usage with many sandboxes, the latency of the command line.

import { Runtime } from "@forkd/runtime";
import {
  askWithoutPause,
  compareEvals,
  compareForks,
  daemonSide,
  idleCpu,
  killAllOf,
  makeMany,
  rssMibOf,
  runtimeSide,
  timeCli,
  timeLists,
  type Compared,
  type Sides,
  type Throughput,
} from "./daemon-load.ts";
import { OwnDaemon } from "./daemon-process.ts";
import { atLeast, atMost, type Goal } from "./goals.ts";
import { describeMachine, type Machine } from "./machine.ts";
import { IMAGE, type BenchOptions } from "./setup.ts";
import { round } from "./stats.ts";

const TAG = "bench";
const MEMORY_MIB = 256;
const LIST_ROUNDS = 50;
const CLI_ROUNDS = 10;
/** how often the two sides take turns at the load, after a short one that does not count */
const LOAD_TURNS = 2;
const LOAD_WARM_UP_SECS = 2;
const DEFAULT_MAX_SANDBOXES = 1000;

export type DaemonReport = {
  machine: Machine;
  method: string;
  sandboxes: number;
  eval_sandboxes: number;
  rounds: number;
  seconds: number;
  /** ms */
  overhead: { fork: Compared; answered: Compared; kill: Compared; eval: Compared };
  many: {
    /** until all had answered */
    make_ms: Pick<Compared, "daemon" | "runtime" | "ratio">;
    idle_cpu_percent: { daemon: number; warden: number; vmms: number };
    rss_mib: number;
    list_ms: number;
    list_raw_ms: number;
  };
  load: { daemon: Throughput; runtime: Throughput; ratio: number };
  cli: { help_ms: number; ls_ms: number };
  goals: Goal[];
};

export type DaemonBenchOptions = BenchOptions & { sandboxes: number; evalSandboxes: number; rounds: number; seconds: number };

type Context = DaemonBenchOptions & { own: OwnDaemon; sides: Sides };

export async function benchDaemon(opts: DaemonBenchOptions): Promise<DaemonReport> {
  const { signal, progress } = opts;
  const most = Math.max(opts.sandboxes, opts.evalSandboxes);
  await using own = await OwnDaemon.start({ signal, progress, maxSandboxes: Math.max(DEFAULT_MAX_SANDBOXES, most + 1) });
  progress({ step: "Making the snapshot" });
  const warmUp = { kernels: [{ language: "python" as const, code: "import numpy" }] };
  await own.controller.createSnapshot(TAG, { image: IMAGE, memoryMib: MEMORY_MIB, warmUp, signal });
  await using runtime = await Runtime.start({ home: own.homeForRuntime, signal });
  const sides = { daemon: daemonSide(own, TAG, signal), runtime: runtimeSide(runtime, await runtime.snapshots.get(TAG), signal) };
  const context = { ...opts, own, sides };
  const measured = {
    overhead: await measureOverhead(context),
    many: await measureMany(context),
    load: await measureLoad(context),
    cli: await measureCli(context),
  };
  return {
    machine: describeMachine(runtime),
    method: methodOf(opts),
    sandboxes: opts.sandboxes,
    eval_sandboxes: opts.evalSandboxes,
    rounds: opts.rounds,
    seconds: opts.seconds,
    ...measured,
    goals: goalsOf(opts, measured),
  };
}

async function measureOverhead({ sides, rounds, signal, progress }: Context): Promise<DaemonReport["overhead"]> {
  progress({ step: `${rounds} forks by the daemon and as many without it` });
  const forks = await compareForks(sides, rounds, signal);
  progress({ step: `${rounds} evals through the daemon and as many without it` });
  return { ...forks, eval: await compareEvals(sides, rounds, signal) };
}

async function measureMany({ own, sides, sandboxes, seconds, signal, progress }: Context): Promise<DaemonReport["many"]> {
  progress({ step: `${sandboxes} sandboxes without the daemon` });
  const without = await makeMany(sides.runtime, sandboxes);
  await killAllOf(without.children);
  progress({ step: `${sandboxes} sandboxes by the daemon` });
  const made = await makeMany(sides.daemon, sandboxes);
  progress({ step: `${sandboxes} idle sandboxes` });
  const warden = await own.wardenPid();
  const groups = { daemon: [own.pid], warden: warden === undefined ? [] : [warden], vmms: made.children.map(({ pid }) => pid) };
  const cpu = await idleCpu(groups, seconds, signal);
  const rssMib = await rssMibOf(own.pid);
  const { sdkMs, rawMs } = await timeLists(own, LIST_ROUNDS, sandboxes);
  await killAllOf(made.children);
  return {
    make_ms: { daemon: round(made.ms), runtime: round(without.ms), ratio: round(made.ms / without.ms) },
    idle_cpu_percent: cpu,
    rss_mib: rssMib,
    list_ms: sdkMs,
    list_raw_ms: rawMs,
  };
}

async function measureLoad({ sides, evalSandboxes, seconds, signal, progress }: Context): Promise<DaemonReport["load"]> {
  progress({ step: `Evals in ${evalSandboxes} sandboxes at once` });
  const children = {
    daemon: (await makeMany(sides.daemon, evalSandboxes)).children,
    runtime: (await makeMany(sides.runtime, evalSandboxes)).children,
  };
  const turns: { daemon: Throughput[]; runtime: Throughput[] } = { daemon: [], runtime: [] };
  for (let turn = -1; turn < LOAD_TURNS; turn++) {
    for (const side of ["daemon", "runtime"] as const) {
      const result = await askWithoutPause(children[side], turn < 0 ? LOAD_WARM_UP_SECS : seconds / LOAD_TURNS, signal);
      if (turn >= 0) turns[side].push(result);
    }
  }
  await killAllOf([...children.daemon, ...children.runtime]);
  const [daemon, runtime] = [joined(turns.daemon), joined(turns.runtime)];
  return { daemon, runtime, ratio: round(daemon.perSecond / runtime.perSecond) };
}

async function measureCli({ own, signal, progress }: Context): Promise<DaemonReport["cli"]> {
  progress({ step: "The command line" });
  return { help_ms: await timeCli(own, ["--help"], CLI_ROUNDS, signal), ls_ms: await timeCli(own, ["ls"], CLI_ROUNDS, signal) };
}

function joined(turns: readonly Throughput[]): Throughput {
  const sum = (of: (turn: Throughput) => number): number => turns.reduce((total, turn) => total + of(turn), 0);
  return {
    evals: sum((turn) => turn.evals),
    errors: sum((turn) => turn.errors),
    perSecond: round(sum((turn) => turn.perSecond) / turns.length),
  };
}

function methodOf({ sandboxes, evalSandboxes, rounds, seconds }: DaemonBenchOptions): string {
  return [
    `a daemon and a store of its own, through the SDK over the Unix socket, against a runtime in the benchmark's process with the same ${MEMORY_MIB} MiB snapshot`,
    `medians of ${rounds} forks and ${rounds} evals of 1+1, the two in turns, every child asked before it is ended`,
    `${sandboxes} sandboxes made by one request and all asked, then left alone for ${seconds} s; CPU in percent of one core`,
    `${evalSandboxes} sandboxes asked without pause, one request each at a time, for ${seconds} s on each side in ${LOAD_TURNS} turns, the client on the same cores`,
    `medians of ${LIST_ROUNDS} lists and of ${CLI_ROUNDS} runs of the command line`,
  ].join("; ");
}

function goalsOf(
  { sandboxes }: DaemonBenchOptions,
  { overhead, many, load, cli }: Pick<DaemonReport, "overhead" | "many" | "load" | "cli">,
): Goal[] {
  return [
    atMost("fork by the daemon", overhead.fork.ratio, 1.1, "×"),
    atMost("eval through the daemon, more by", overhead.eval.difference, 2, "ms"),
    atMost(`idle CPU with ${sandboxes} sandboxes`, many.idle_cpu_percent.daemon, 2, "%"),
    atMost(`memory with ${sandboxes} sandboxes`, many.rss_mib, 150, "MiB"),
    atMost(`list of ${sandboxes} sandboxes`, many.list_ms, 20, "ms"),
    // a host too slow for the first is measured by the second
    atLeast("evals in all (or the next)", load.daemon.perSecond, 300, "/s"),
    atLeast("evals, of what the guests can do", load.ratio, 0.8, "×"),
    atMost("evals that failed", load.daemon.errors, 0, ""),
    atMost("forkd --help", cli.help_ms, 150, "ms"),
    atMost("forkd ls", cli.ls_ms, 250, "ms"),
  ];
}
