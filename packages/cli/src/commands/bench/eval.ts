// forkd bench eval

import { Command } from "commander";
import { printTable } from "../../terminal/output.ts";
import { showProgress } from "../../terminal/progress.ts";
import { loadBenchmarks } from "./load.ts";
import { positiveInteger, printReport } from "./report.ts";

import type { EvalReport } from "@forkd/bench";
import type { Cli } from "../../cli.ts";

type Options = { rounds: number; svg: string };

export function benchEvalCommand(cli: Cli): Command {
  return new Command("eval")
    .description("a call into the warm kernel, compared with a fresh interpreter")
    .option("--rounds <count>", "calls of each kind", positiveInteger, 100)
    .option("--svg <file>", "output file of the chart", "bench/results/eval.svg")
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const { benchEval, evalChart } = await loadBenchmarks();
      using display = showProgress();
      const report = await benchEval({ rounds: opts.rounds, signal: cli.signal, progress: display.onEvent });
      display[Symbol.dispose]();
      await printReport(report, { json: cli.json, svgFile: opts.svg, svg: evalChart(report), table: () => printEvals(report) });
    });
}

function printEvals(report: EvalReport): void {
  const rows = [
    { what: "eval in the warm kernel", ...report.eval_ms },
    { what: "exec of true", ...report.exec_true_ms },
    { what: "exec of python3 -c 'import numpy; …'", ...report.exec_python_ms },
  ];
  printTable(rows, [
    { title: "CALL", value: (row) => row.what },
    { title: "P50 MS", value: (row) => row.p50.toFixed(2), align: "right" },
    { title: "P90 MS", value: (row) => row.p90.toFixed(2), align: "right" },
    { title: "P99 MS", value: (row) => row.p99.toFixed(2), align: "right" },
  ]);
}
