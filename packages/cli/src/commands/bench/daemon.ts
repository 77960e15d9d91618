// forkd bench daemon

import { Command } from "commander";
import { printTable } from "../../terminal/output.ts";
import { loadBenchmarks } from "./load.ts";
import { measure, positiveInteger } from "./report.ts";

import type { DaemonReport } from "@forkd/bench";
import type { Cli } from "../../cli.ts";

type Options = { sandboxes: number; evalSandboxes: number; rounds: number; seconds: number };

export function benchDaemonCommand(cli: Cli): Command {
  return new Command("daemon")
    .description("overhead of the daemon: of a fork, of a call, with many sandboxes; starts its own daemon")
    .option("--sandboxes <count>", "live sandboxes", positiveInteger, 200)
    .option("--eval-sandboxes <count>", "concurrent evals", positiveInteger, 50)
    .option("--rounds <count>", "forks and calls of each kind", positiveInteger, 100)
    .option("--seconds <count>", "duration of the idle and of the load measurement", positiveInteger, 10)
    .option("--json", "print JSON")
    .action(async (opts: Options) => {
      const { benchDaemon } = await loadBenchmarks();
      await measure(cli, async (given) => benchDaemon({ ...opts, ...given }), printFigures);
    });
}

function printFigures({ overhead, many, load, sandboxes, eval_sandboxes: evalSandboxes, cli }: DaemonReport): void {
  const { make_ms: make, idle_cpu_percent: cpu } = many;
  const ms = (value: number): string => `${value.toFixed(2)} ms`;
  const compared = (what: string, { daemon, runtime, ratio }: { daemon: number; runtime: number; ratio: number }, unit = ms): string[] => [
    what,
    unit(daemon),
    unit(runtime),
    `${ratio.toFixed(2)} ×`,
  ];
  const rows = [
    compared("fork", overhead.fork),
    compared("fork, until it answered", overhead.answered),
    compared("kill", overhead.kill),
    compared("eval", overhead.eval),
    compared(`${sandboxes} sandboxes, all answered`, make, (value) => `${(value / 1000).toFixed(2)} s`),
    compared(
      `evals in ${evalSandboxes} sandboxes`,
      { daemon: load.daemon.perSecond, runtime: load.runtime.perSecond, ratio: load.ratio },
      (value) => `${value.toFixed(0)} /s`,
    ),
    ["evals that failed", String(load.daemon.errors), String(load.runtime.errors), ""],
    [`idle with ${sandboxes}: CPU of the daemon`, `${cpu.daemon.toFixed(1)} %`, "", ""],
    [`idle with ${sandboxes}: CPU of the warden`, `${cpu.warden.toFixed(1)} %`, "", ""],
    [`idle with ${sandboxes}: CPU of all VMMs`, `${cpu.vmms.toFixed(1)} %`, "", ""],
    [`idle with ${sandboxes}: memory of the daemon`, `${many.rss_mib.toFixed(0)} MiB`, "", ""],
    [`list of ${sandboxes}`, ms(many.list_ms), "", ""],
    [`list of ${sandboxes}, bytes only`, ms(many.list_raw_ms), "", ""],
    ["forkd --help", ms(cli.help_ms), "", ""],
    ["forkd ls", ms(cli.ls_ms), "", ""],
  ];
  printTable(rows, [
    { title: "WHAT", value: ([what]) => what ?? "" },
    { title: "DAEMON", value: ([, daemon]) => daemon ?? "", align: "right" },
    { title: "WITHOUT", value: ([, , runtime]) => runtime ?? "", align: "right" },
    { title: "RATIO", value: ([, , , ratio]) => ratio ?? "", align: "right" },
  ]);
}
