// forkd doctor: checks this host, and says how to fix what fails.

import { Command } from "commander";
import { EXIT_FAILURE } from "../exit.ts";
import { printJson, printLine, printParagraph, printTable } from "../terminal/output.ts";
import { showProgress } from "../terminal/progress.ts";

import type { Cli } from "../cli.ts";

const COLOURS: Record<string, "green" | "yellow" | "red"> = { PASS: "green", WARN: "yellow", FAIL: "red" };

const isSentence = (text: string): boolean => /^[A-Z]/.test(text);

export function doctorCommand(cli: Cli): Command {
  return new Command("doctor")
    .description("check this host, and print the command that fixes each failure")
    .option("--json", "print JSON")
    .action(async () => {
      const { resolveConfig } = await import("@forkd/daemon");
      const { resolveHome, runDoctor } = await import("@forkd/runtime");
      const home = resolveHome();
      const { accelerator, isolation } = (await resolveConfig({ home })).values;
      using display = showProgress();
      const report = await runDoctor(home, { accelerator, isolation, signal: cli.signal, progress: display.onEvent });
      if (!report.ok) cli.exitCode = EXIT_FAILURE;
      display[Symbol.dispose]();
      if (cli.json) {
        printJson(report);
        return;
      }
      printTable(report.checks, [
        { title: "STATUS", value: (check) => check.status.toUpperCase(), style: (text) => COLOURS[text] },
        { title: "CHECK", value: (check) => check.id },
        { title: "REASON", value: (check) => check.reason, wraps: true },
      ]);
      const fixes = report.checks.filter((check) => check.status !== "pass" && check.fix);
      if (fixes.length > 0) {
        printLine();
        printTable(fixes, [
          { title: "TO FIX", value: (check) => check.id },
          // a command is not wrapped, so that it can be copied
          { title: "DO", value: (check) => check.fix ?? "", wraps: isSentence },
        ]);
      }
      printLine();
      printParagraph(report.summary);
    });
}
