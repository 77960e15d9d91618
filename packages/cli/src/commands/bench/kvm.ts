// forkd bench kvm

import { Command } from "commander";
import { forkCount } from "../../options/values.ts";
import { printJson, printPlain } from "../../terminal/output.ts";
import { showProgress } from "../../terminal/progress.ts";
import { loadBenchmarks } from "./load.ts";
import { positiveInteger } from "./report.ts";

import type { Cli } from "../../cli.ts";

type Options = { n: number; clockSecs: number; smoke?: boolean };

export function benchKvmCommand(cli: Cli): Command {
  return new Command("kvm")
    .description("with KVM and without: boot, fork, branch, disk, network, clock, then all benchmarks; prints one report to paste")
    .option("-n, --n <count>", "children of the fan-out; the others grow with it", forkCount, 100)
    .option("--clock-secs <secs>", "duration of the clock comparison", positiveInteger, 60)
    .option("--smoke", "no benchmarks")
    .option("--json", "print JSON")
    .action(async ({ n, clockSecs, smoke }: Options) => {
      const { benchKvm, kvmText } = await loadBenchmarks();
      const { DEFAULT_PARALLELISM } = await import("@forkd/runtime");
      using display = showProgress();
      const given = { signal: cli.signal, progress: display.onEvent, parallelism: DEFAULT_PARALLELISM };
      const report = await benchKvm({ n, clockSecs, smokeOnly: smoke === true, ...given });
      display[Symbol.dispose]();
      if (report.runs.some((run) => run.smoke.some(({ ok }) => !ok))) cli.exitCode = 1;
      if (cli.json) printJson(report);
      else for (const line of kvmText(report).split("\n")) printPlain(line);
    });
}
