// forkd bench fanout

import { Command } from "commander";
import { printTable } from "../../terminal/output.ts";
import { showProgress } from "../../terminal/progress.ts";
import { forkCount } from "../../options/values.ts";
import { loadBenchmarks } from "./load.ts";
import { positiveInteger, printReport } from "./report.ts";

import type { FanoutReport } from "@forkd/bench";
import type { Cli } from "../../cli.ts";

type Options = { n: number; parallelism?: number; svg: string };

export function benchFanoutCommand(cli: Cli): Command {
  return new Command("fanout")
    .description("time until n children have all answered, against bare QEMU, containers and cold boots")
    .option("-n, --n <count>", "children", forkCount, 100)
    .option("--parallelism <count>", "how many start at a time (default: cores + 1, as the runtime does)", positiveInteger)
    .option("--svg <file>", "output file of the chart", "bench/results/fanout.svg")
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const { benchFanout, fanoutChart } = await loadBenchmarks();
      const { DEFAULT_PARALLELISM } = await import("@forkd/runtime");
      using display = showProgress();
      const report = await benchFanout({ parallelism: DEFAULT_PARALLELISM, ...opts, signal: cli.signal, progress: display.onEvent });
      display[Symbol.dispose]();
      await printReport(report, { json: cli.json, svgFile: opts.svg, svg: fanoutChart(report), table: () => printFanout(report) });
      if (report.failed > 0) cli.exitCode = 1;
    });
}

function printFanout(report: FanoutReport): void {
  const ratio = (ms: number): string => `${(ms / report.forkd_ms).toFixed(2)} ×`;
  const seconds = (ms: number): string => `${(ms / 1000).toFixed(2)} s`;
  printTable(
    [
      { what: "forkd", time: seconds(report.forkd_ms), against: "1.00 ×" },
      ...(report.clone_ms === null
        ? []
        : [{ what: "forkd, with a VMM to clone", time: seconds(report.clone_ms), against: ratio(report.clone_ms) }]),
      { what: "forkd, restored", time: seconds(report.restore_ms), against: ratio(report.restore_ms) },
      { what: "forkd, from the pool", time: seconds(report.forkd_pooled_ms), against: ratio(report.forkd_pooled_ms) },
      { what: "bare QEMU (floor)", time: seconds(report.floor_ms), against: ratio(report.floor_ms) },
      report.runc_ms === null
        ? { what: "runc containers", time: `not measured: ${report.runc_skipped}`, against: "" }
        : { what: "runc containers", time: seconds(report.runc_ms), against: ratio(report.runc_ms) },
      {
        what: `cold boots (one took ${seconds(report.cold_boot_ms)}, extrapolated)`,
        time: seconds(report.cold_boot_ms * report.n),
        against: ratio(report.cold_boot_ms * report.n),
      },
      ...(report.clone_cpu_ms === null ? [] : [{ what: "CPU time per clone", time: `${report.clone_cpu_ms.toFixed(1)} ms`, against: "" }]),
      { what: "CPU time per restored child", time: `${report.restore_cpu_ms.toFixed(1)} ms`, against: "" },
      {
        what: "one child to its answer, p50 / p99",
        time: `${report.one_ms.p50.toFixed(1)} / ${report.one_ms.p99.toFixed(1)} ms`,
        against: "",
      },
      { what: "private guest memory per child", time: `${report.private_mib_per_child.toFixed(2)} MiB`, against: "" },
      { what: "PSS per child", time: `${report.pss_mib_per_child.toFixed(2)} MiB`, against: "" },
      { what: "failed", time: String(report.failed), against: "" },
    ],
    [
      { title: `${report.n} SANDBOXES`, value: (row) => row.what },
      { title: "VALUE", value: (row) => row.time, align: "right" },
      { title: "OF FORKD", value: (row) => row.against, align: "right" },
    ],
  );
}
