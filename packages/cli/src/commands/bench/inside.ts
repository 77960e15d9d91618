// forkd bench inside

import { Command } from "commander";
import { printTable } from "../../terminal/output.ts";
import { loadBenchmarks } from "./load.ts";
import { measure, positiveInteger } from "./report.ts";

import type { InsideReport } from "@forkd/bench";
import type { Cli } from "../../cli.ts";

type Options = { rounds: number; mib: number; seconds: number };

export function benchInsideCommand(cli: Cli): Command {
  return new Command("inside")
    .description("work inside a sandbox: programs, output, files, a server, network rules; starts its own daemon")
    .option("--rounds <count>", "calls of each kind", positiveInteger, 100)
    .option("--mib <count>", "size of the copies in and out", positiveInteger, 100)
    .option("--seconds <count>", "duration of the requests to a server", positiveInteger, 10)
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const { benchInside } = await loadBenchmarks();
      await measure(cli, async (given) => benchInside({ ...opts, ...given }), printFigures);
    });
}

function printFigures({ calls, echo_ms: echo, files, requests, policy }: InsideReport): void {
  const ms = (value: number): string => `${value.toFixed(2)} ms`;
  const speed = (value: number): string => `${value.toFixed(0)} MiB/s`;
  const perSecond = (value: number): string => `${value.toFixed(0)} /s`;
  const rows: [string, string][] = [
    ["eval", ms(calls.eval_ms)],
    ["exec of true", ms(calls.exec_ms)],
    ["a line to a program and back", `${ms(echo.p50)}, p99 ${ms(echo.p99)}`],
    ["file in", `${speed(files.up.mib_per_second)} (channel alone ${speed(files.raw.up)})`],
    ["file out", `${speed(files.down.mib_per_second)} (channel alone ${speed(files.raw.down)})`],
    ["daemon's memory meanwhile", `+ ${files.up.daemon_more_mib} in, + ${files.down.daemon_more_mib} MiB out`],
    ["cp -r in, out", `${speed(files.folder.up)}, ${speed(files.folder.down)}`],
    ["requests through the proxy", `${perSecond(requests.proxy.per_second)}, ${requests.proxy.errors} failed`],
    ["requests inside the guest", perSecond(requests.guest_alone.per_second)],
    ["a rule allows", `${ms(policy.allowed_ms.p50)}, p99 ${ms(policy.allowed_ms.p99)}`],
    ["a rule cuts", `${ms(policy.cut_ms.p50)}, p99 ${ms(policy.cut_ms.p99)}`],
  ];
  printTable(rows, [
    { title: "WHAT", value: ([what]) => what },
    { title: "MEASURED", value: ([, measured]) => measured, align: "right" },
  ]);
}
