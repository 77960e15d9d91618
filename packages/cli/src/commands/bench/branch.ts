// forkd bench branch

import { Command } from "commander";
import { formatBytes, printTable } from "../../terminal/output.ts";
import { showProgress } from "../../terminal/progress.ts";
import { loadBenchmarks } from "./load.ts";
import { integerList, positiveInteger, printReport } from "./report.ts";

import type { BranchReport } from "@forkd/bench";
import type { Cli } from "../../cli.ts";

type Options = { branches: number; ram: number[]; changed: number[]; svg: string };

export function benchBranchCommand(cli: Cli): Command {
  return new Command("branch")
    .description("pause of the source of a branch, and time until a grandchild answers")
    .option("--branches <count>", "branches of each source", positiveInteger, 30)
    .option("--ram <list>", "guest RAM in MiB, separated by commas", integerList, [256, 1024, 4096])
    .option("--changed <list>", "MiB changed since the fork, separated by commas", integerList, [1, 10, 100])
    .option("--svg <file>", "output file of the chart", "bench/results/branch.svg")
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const { benchBranch, branchChart } = await loadBenchmarks();
      using display = showProgress();
      const report = await benchBranch({
        branches: opts.branches,
        ramMib: opts.ram,
        changedMib: opts.changed,
        signal: cli.signal,
        progress: display.onEvent,
      });
      display[Symbol.dispose]();
      await printReport(report, { json: cli.json, svgFile: opts.svg, svg: branchChart(report), table: () => printBranches(report) });
    });
}

function printBranches(report: BranchReport): void {
  const three = (value: { p50: number; p90: number; p99: number }): string =>
    `${value.p50.toFixed(1)} / ${value.p90.toFixed(1)} / ${value.p99.toFixed(1)}`;
  printTable(report.rows, [
    { title: "RAM MIB", value: (row) => String(row.ram_mib), align: "right" },
    { title: "CHANGED MIB", value: (row) => String(row.changed_mib), align: "right" },
    { title: "PAUSE HOST P50/P90/P99 MS", value: (row) => three(row.pause_host_ms), align: "right" },
    { title: "PAUSE GUEST", value: (row) => three(row.pause_guest_ms), align: "right" },
    { title: "GUEST IDLE", value: (row) => three(row.idle_guest_ms), align: "right" },
    { title: "1ST", value: (row) => row.pause_first_ms.toFixed(1), align: "right" },
    { title: "10TH", value: (row) => row.pause_tenth_ms.toFixed(1), align: "right" },
    { title: "READY MS", value: (row) => row.ready_ms.toFixed(0), align: "right" },
    { title: "STORED", value: (row) => formatBytes(row.stored_bytes), align: "right" },
    { title: "CHANGED", value: (row) => formatBytes(row.changed_bytes), align: "right" },
    { title: "4TH STORED", value: (row) => formatBytes(row.fourth_stored_bytes), align: "right" },
    { title: "SINCE 3RD", value: (row) => formatBytes(row.fourth_changed_bytes), align: "right" },
  ]);
}
