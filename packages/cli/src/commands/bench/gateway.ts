// forkd bench gateway

import { Command } from "commander";
import { printTable } from "../../terminal/output.ts";
import { loadBenchmarks } from "./load.ts";
import { measure, positiveInteger } from "./report.ts";

import type { GatewayReport } from "@forkd/bench";
import type { Cli } from "../../cli.ts";

type Options = { evals: number; forks: number };

export function benchGatewayCommand(cli: Cli): Command {
  return new Command("gateway")
    .description("what a gateway adds to an eval and to a fork; starts its own daemon and gateway")
    .option("--evals <count>", "evals by each way", positiveInteger, 500)
    .option("--forks <count>", "forks by each way", positiveInteger, 50)
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const { benchGateway } = await loadBenchmarks();
      await measure(cli, async (given) => benchGateway({ ...opts, ...given }), printFigures);
    });
}

function printFigures({ eval_ms: evals, fork_ms: forks }: GatewayReport): void {
  const ms = (value: number): string => `${value.toFixed(2)} ms`;
  printTable(
    [
      { what: "eval", of: evals },
      { what: "fork", of: forks },
    ],
    [
      { title: "WHAT", value: ({ what }) => what },
      { title: "DIRECT P50", value: ({ of }) => ms(of.direct.p50), align: "right" },
      { title: "THROUGH P50", value: ({ of }) => ms(of.through.p50), align: "right" },
      { title: "ADDED", value: ({ of }) => ms(of.added), align: "right" },
      { title: "P99 DIRECT, THROUGH", value: ({ of }) => `${ms(of.direct.p99)}, ${ms(of.through.p99)}`, align: "right" },
    ],
  );
}
