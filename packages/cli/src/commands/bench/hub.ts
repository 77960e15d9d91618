// forkd bench hub

import { Command } from "commander";
import { formatBytes, printTable } from "../../terminal/output.ts";
import { loadBenchmarks } from "./load.ts";
import { measure } from "./report.ts";

import type { HubReport } from "@forkd/bench";
import type { Cli } from "../../cli.ts";

export function benchHubCommand(cli: Cli): Command {
  return new Command("hub")
    .description("push and pull through a local registry: bytes sent and time; starts its own daemons")
    .option("--json", "print JSON")
    .action(async () => {
      const { benchHub } = await loadBenchmarks();
      await measure(cli, benchHub, printFigures);
    });
}

function printFigures(report: HubReport): void {
  const { base, branch, mounted, repeated } = report;
  const ms = (value: number): string => `${value.toFixed(0)} ms`;
  const push = ({ ms: took, bytes, sent_bytes: sent }: HubReport["base"]): string =>
    `${ms(took)}, sent ${formatBytes(sent)} of ${formatBytes(bytes)}`;
  const rows: [string, string][] = [
    ["push of a snapshot", push(base)],
    [`push of a branch of it, whose delta is ${formatBytes(branch.delta_bytes)}`, push(branch)],
    ["push of the branch into another repository", push(mounted)],
    ["the same again", push(repeated)],
    ["unpack the branch from a file, fork, eval", ms(report.unpack_ms)],
    ["pull the branch, fork, eval", ms(report.pull_ms)],
    ["pull the branch where the snapshot is", ms(report.pull_branch_ms)],
  ];
  printTable(rows, [
    { title: "WHAT", value: ([what]) => what },
    { title: "MEASURED", value: ([, measured]) => measured, align: "right" },
  ]);
}
