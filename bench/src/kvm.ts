// A report of one machine with KVM and without: functional checks and all benchmarks.

import { messageOf, prepareHome, resolveHome, Runtime } from "@forkd/runtime";
import { benchBranch } from "./branch.ts";
import { benchDaemon } from "./daemon.ts";
import { benchE2b } from "./e2b.ts";
import { benchEval } from "./eval.ts";
import { benchFanout } from "./fanout.ts";
import { benchHub } from "./hub.ts";
import { benchInside } from "./inside.ts";
import { describeMachine, type Machine } from "./machine.ts";
import { benchPack } from "./pack.ts";
import { ensureImage, type BenchOptions } from "./setup.ts";
import { smoke, type SmokeStep } from "./smoke.ts";

type Accelerator = "kvm" | "tcg";

export type KvmRun = {
  accelerator: Accelerator;
  /** why KVM was not tried; null: it was */
  skipped: string | null;
  smoke: SmokeStep[];
  /** by benchmark and figure */
  figures: Record<string, number>;
  /** by benchmark, why it has no figures */
  failures: Record<string, string>;
};

export type KvmReport = { machine: Machine; date: string; runs: KvmRun[] };

export type KvmBenchOptions = BenchOptions & {
  clockSecs: number;
  /** children of the fan-out; the other benchmarks grow with it */
  n: number;
  parallelism: number;
  /** the smoke alone */
  smokeOnly: boolean;
};

type Benchmark = (opts: KvmBenchOptions) => Promise<object>;

const BENCHMARKS: Record<string, Benchmark> = {
  fanout: async (opts) => benchFanout(opts),
  branch: async (opts) => benchBranch({ ...opts, branches: 30, ramMib: [256, 1024], changedMib: [1, 10, 100] }),
  eval: async (opts) => benchEval({ ...opts, rounds: opts.n }),
  daemon: async (opts) =>
    benchDaemon({ ...opts, sandboxes: 2 * opts.n, evalSandboxes: Math.ceil(opts.n / 2), rounds: opts.n, seconds: 10 }),
  inside: async (opts) => benchInside({ ...opts, rounds: opts.n, mib: 100, seconds: 10 }),
  pack: async (opts) => benchPack({ ...opts, memoryMib: 1024, level: 3, rounds: 3 }),
  hub: async (opts) => benchHub(opts),
  e2b: async (opts) => benchE2b({ ...opts, rounds: opts.n, forks: Math.ceil(opts.n / 5), sessions: opts.n }),
};

export async function benchKvm(opts: KvmBenchOptions): Promise<KvmReport> {
  const home = await prepareHome(resolveHome());
  await ensureImage(home, opts);
  const { machine, refusal } = await lookAtHost(opts);
  const runs: KvmRun[] = [];
  for (const accelerator of ["kvm", "tcg"] as const)
    runs.push(accelerator === "kvm" && refusal !== null ? skipped(refusal) : await runWith(accelerator, opts));
  return { machine, date: new Date().toISOString().slice(0, 10), runs };
}

function skipped(why: string): KvmRun {
  return { accelerator: "kvm", skipped: why, smoke: [], figures: {}, failures: {} };
}

async function lookAtHost(opts: KvmBenchOptions): Promise<{ machine: Machine; refusal: string | null }> {
  opts.progress({ step: "Trying KVM" });
  await using runtime = await Runtime.start({ home: resolveHome(), accelerator: "auto", signal: opts.signal });
  const { accelerator, reason, advice } = runtime.accelerator;
  const refusal = accelerator === "kvm" ? null : advice === undefined ? reason : `${reason} (${advice})`;
  return { machine: describeMachine(runtime), refusal };
}

async function runWith(accelerator: Accelerator, opts: KvmBenchOptions): Promise<KvmRun> {
  using _ = forcedAccelerator(accelerator);
  const run: KvmRun = { accelerator, skipped: null, smoke: await smokeWith(opts), figures: {}, failures: {} };
  if (opts.smokeOnly) return run;
  for (const [name, measure] of Object.entries(BENCHMARKS)) {
    opts.progress({ step: `${accelerator}: ${name}` });
    try {
      for (const [figure, value] of figuresOf(await measure(opts))) run.figures[`${name} ${figure}`] = value;
    } catch (error) {
      opts.signal.throwIfAborted();
      run.failures[name] = messageOf(error);
    }
  }
  return run;
}

async function smokeWith(opts: KvmBenchOptions): Promise<SmokeStep[]> {
  await using runtime = await Runtime.start({ home: resolveHome(), signal: opts.signal });
  return await smoke(runtime, opts);
}

/** For the daemons that benchmarks start as well as for this process */
function forcedAccelerator(accelerator: Accelerator): Disposable {
  const before = process.env["FORKD_ACCELERATOR"];
  process.env["FORKD_ACCELERATOR"] = accelerator;
  return {
    [Symbol.dispose]: () => {
      if (before === undefined) delete process.env["FORKD_ACCELERATOR"];
      else process.env["FORKD_ACCELERATOR"] = before;
    },
  };
}

/** The numbers of a report by their path; of a list each with its place */
export function figuresOf(report: object, path = ""): [string, number][] {
  return Object.entries(report).flatMap(([key, value]: [string, unknown]): [string, number][] => {
    const at = path === "" ? key : `${path}.${key}`;
    if (typeof value === "number") return [[at, Math.round(value * 100) / 100]];
    return typeof value === "object" && value !== null && key !== "machine" && key !== "goals" ? figuresOf(value, at) : [];
  });
}

/** As Markdown */
export function kvmText(report: KvmReport): string {
  const { machine, date, runs } = report;
  const place = `${machine.cpu}, ${machine.cores} cores, ${machine.memory_gib} GiB, Linux ${machine.host_kernel}, QEMU ${machine.qemu}`;
  return [`### ${place}, ${date}`, ...runs.map(smokeText), figuresText(runs), failuresText(runs)]
    .filter((text) => text !== "")
    .join("\n\n");
}

function smokeText({ accelerator, skipped: why, smoke: steps }: KvmRun): string {
  if (why !== null) return `**${accelerator}**: not tried: ${why}`;
  const rows = steps.map(({ what, ok, ms, detail }) => `| ${what} | ${ok ? "ok" : "FAILED"} | ${ms} ms | ${cell(detail)} |`);
  return [`**${accelerator}**`, "", "| | | | |", "|---|---|---|---|", ...rows].join("\n");
}

function figuresText(runs: readonly KvmRun[]): string {
  const names = [...new Set(runs.flatMap(({ figures }) => Object.keys(figures)))];
  if (names.length === 0) return "";
  const head = [`| | ${runs.map(({ accelerator }) => accelerator).join(" | ")} |`, `|---|${runs.map(() => "---:|").join("")}`];
  return [...head, ...names.map((name) => `| ${name} | ${runs.map(({ figures }) => figures[name] ?? "").join(" | ")} |`)].join("\n");
}

function failuresText(runs: readonly KvmRun[]): string {
  return runs
    .flatMap(({ accelerator, failures }) =>
      Object.entries(failures).map(([name, why]) => `- ${accelerator}, ${name}: not measured: ${cell(why)}`),
    )
    .join("\n");
}

function cell(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll("|", "\\|");
}
