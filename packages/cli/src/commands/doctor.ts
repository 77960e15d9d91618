// forkd doctor: what this host can do, and how to mend what it cannot.

import { Command } from "commander";
import { EXIT_FAILURE } from "../exit.ts";
import { printJson, printLine, printTable } from "../output.ts";
import { showProgress } from "../progress.ts";

import type { Cli } from "../cli.ts";

const COLOURS: Record<string, "green" | "yellow" | "red"> = { PASS: "green", WARN: "yellow", FAIL: "red" };

export function doctorCommand(cli: Cli): Command {
  return new Command("doctor")
    .description("check this host: what works, what does not, and the command that mends it")
    .option("--json", "print JSON")
    .action(async () => {
      const { resolveHome, runDoctor } = await import("@forkd/daemon");
      using display = showProgress();
      const report = await runDoctor(resolveHome(), { signal: cli.signal, progress: display.onEvent });
      if (!report.ok) cli.exitCode = EXIT_FAILURE;
      display[Symbol.dispose]();
      if (cli.json) {
        printJson(report);
        return;
      }
      printTable(report.checks, [
        { title: "STATUS", value: (check) => check.status.toUpperCase(), style: (text) => COLOURS[text] },
        { title: "CHECK", value: (check) => check.id },
        { title: "REASON", value: (check) => check.reason },
      ]);
      const fixes = report.checks.filter((check) => check.status !== "pass" && check.fix);
      if (fixes.length > 0) {
        printLine();
        printTable(fixes, [
          { title: "TO MEND", value: (check) => check.id },
          { title: "DO", value: (check) => check.fix ?? "" },
        ]);
      }
      printLine();
      printLine(report.summary);
    });
}
