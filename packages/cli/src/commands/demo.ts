// forkd demo: the whole idea in one run.

import { Command } from "commander";
import { printJson } from "../output.ts";
import { showProgress } from "../progress.ts";

import type { Cli } from "../cli.ts";

export function demoCommand(cli: Cli): Command {
  return new Command("demo")
    .description("boot and warm a VM, fork 10 children, branch one in the middle of its work, fork 3 from there")
    .option("--json", "print JSON")
    .action(async () => {
      const { runDemo } = await import("../demo/run.ts");
      const { printDemo } = await import("../demo/print.ts");
      using display = showProgress();
      const report = await runDemo({ signal: cli.signal, progress: display.onEvent });
      display[Symbol.dispose]();
      if (cli.json) printJson(report);
      else printDemo(report);
      if (report.leftovers > 0) cli.exitCode = 1;
    });
}
