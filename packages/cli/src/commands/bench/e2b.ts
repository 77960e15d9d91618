// forkd bench e2b

import { Command } from "commander";
import { printLine, printTable } from "../../terminal/output.ts";
import { loadBenchmarks } from "./load.ts";
import { measure, positiveInteger } from "./report.ts";

import type { E2bReport } from "@forkd/bench";
import type { Cli } from "../../cli.ts";

type Options = { rounds: number; forks: number; sessions: number };

export function benchE2bCommand(cli: Cli): Command {
  return new Command("e2b")
    .description("E2B's SDK compared with forkd's: create, fork, output, many sessions, kill; starts its own daemon")
    .option("--rounds <count>", "calls of each kind", positiveInteger, 100)
    .option("--forks <count>", "children of a fork", positiveInteger, 20)
    .option("--sessions <count>", "sessions at once", positiveInteger, 100)
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const { benchE2b } = await loadBenchmarks();
      await measure(cli, async (given) => benchE2b({ ...opts, ...given }), printFigures);
    });
}

function printFigures({ create_ms: create, fork_ms: fork, echo_ms: echo, kill_seen_ms: kill, sessions }: E2bReport): void {
  const ms = (value: number): string => `${value.toFixed(2)} ms`;
  const rows: [string, string][] = [
    ["a sandbox by E2B's SDK", `${ms(create.e2b)} (ours ${ms(create.own)})`],
    ["a fork by E2B's SDK, all answering", `${ms(fork.e2b)} (ours ${ms(fork.own)})`],
    ["a line to a command and back", `${ms(echo.p50)}, p99 ${ms(echo.p99)}`],
    ["a kill seen by a running command", `${ms(kill.p50)}, p99 ${ms(kill.p99)}`],
    [`${sessions.count} sessions at once`, `${sessions.seconds} s, ${sessions.errors} failed`],
  ];
  printTable(rows, [
    { title: "WHAT", value: ([what]) => what },
    { title: "MEASURED", value: ([, measured]) => measured, align: "right" },
  ]);
  if (sessions.first_error !== null) printLine(`The first failure: ${sessions.first_error}`);
}
