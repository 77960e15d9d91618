// forkd demo: boot, fork, branch and fork again in one run.

import { Command } from "commander";
import { printJson } from "../terminal/output.ts";
import { showProgress } from "../terminal/progress.ts";
import { printUnconfined } from "../daemon/unconfined.ts";

import type { Cli } from "../cli.ts";

export function demoCommand(cli: Cli): Command {
  return new Command("demo")
    .description("boot and warm a VM, fork 10 children, branch one in the middle of its work, fork 3 from the branch")
    .option("--json", "print JSON")
    .action(async () => {
      const { runDemo } = await import("../demo/run.ts");
      const { printDemo } = await import("../demo/print.ts");
      using display = showProgress();
      const report = await runDemo({ signal: cli.signal, progress: display.onEvent });
      display[Symbol.dispose]();
      if (cli.json) printJson(report);
      else printDemo(report);
      if (report.confinement === "none") printUnconfined(report.confinement_reason);
      if (report.leftovers > 0) cli.exitCode = 1;
    });
}
