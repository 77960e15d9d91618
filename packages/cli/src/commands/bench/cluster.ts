// forkd bench cluster

import { join } from "node:path";
import { Command } from "commander";
import { printLine, printTable } from "../../terminal/output.ts";
import { loadBenchmarks } from "./load.ts";
import { measure, positiveInteger, writeChart } from "./report.ts";

import type { ClusterReport } from "@forkd/bench";
import type { Cli } from "../../cli.ts";

type Options = { nodes: number; seed: number; secs?: number; svg: string };
type Figures = ClusterReport["policies"][number];

export function benchClusterCommand(cli: Cli): Command {
  return new Command("cluster")
    .description("placement of forks on many nodes, by a seeded simulation, against random and least-loaded placement; starts no VM")
    .option("--nodes <count>", "nodes; forks and snapshots are in proportion", positiveInteger, 1000)
    .option("--secs <count>", "simulated seconds after the warm-up (default: 80)", positiveInteger)
    .option("--seed <number>", "repeats a run", positiveInteger, 1)
    .option("--svg <folder>", "output folder of the charts", "bench/results")
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const { benchCluster, clusterPlots } = await loadBenchmarks();
      const run: Parameters<typeof measure<ClusterReport>>[1] = async (given) => {
        const report = await benchCluster({ ...opts, ...given });
        for (const [name, svg] of Object.entries(clusterPlots(report))) await writeChart(join(opts.svg, name), svg);
        return report;
      };
      await measure(cli, run, (report) => printFigures(report, opts.svg));
    });
}

function printFigures({ policies, seed, took_secs: tookSecs }: ClusterReport, folder: string): void {
  const ms = (value: number): string => `${value.toFixed(0)} ms`;
  printTable(policies, [
    { title: "PLACEMENT", value: ({ policy }: Figures) => policy },
    { title: "LOCAL", value: ({ locality }) => `${(locality * 100).toFixed(2)} %`, align: "right" },
    { title: "SENT", value: (one) => `${one.moved_gib.toFixed(0)} GiB`, align: "right" },
    { title: "WAIT P50", value: (one) => ms(one.wait_ms.p50), align: "right" },
    { title: "P99", value: (one) => ms(one.wait_ms.p99), align: "right" },
    { title: "LOAD MAX/MEAN", value: ({ load }) => load.max_to_mean.toFixed(2), align: "right" },
    { title: "P99/MEAN", value: ({ load }) => load.p99_to_mean.toFixed(2), align: "right" },
    { title: "REFUSALS", value: ({ refusals }) => String(refusals), align: "right" },
    { title: "FAILED", value: ({ failed }) => String(failed), align: "right" },
    { title: "LOST", value: ({ lost }) => String(lost), align: "right" },
  ]);
  printLine();
  printLine(`${policies[0]?.forks ?? 0} forks each, seed ${seed}, computed in ${tookSecs.toFixed(0)} s. Charts: ${folder}`);
}
