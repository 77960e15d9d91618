// One run of the CLI: parse, act, report, end.

import { CommanderError } from "commander";
import { exit, installSignals, reportFailure, reportUsage } from "./exit.ts";
import { ignoreBrokenPipes } from "./output.ts";
import { buildProgram } from "./program.ts";

import type { Cli } from "./cli.ts";

/** Never returns normally: it ends the process with the exit code */
export async function main(argv: string[]): Promise<void> {
  ignoreBrokenPipes();
  const signals = installSignals();
  const cli: Cli = { signal: signals.signal, json: false, exitCode: 0 };
  try {
    await buildProgram(cli).parseAsync(argv);
    exit(cli.exitCode);
  } catch (error) {
    if (error instanceof CommanderError) {
      exit(error.exitCode === 0 ? 0 : reportUsage(error, { json: wantsJson(argv) }));
    } else {
      exit(reportFailure(error, { json: cli.json, interruptedBy: signals.receivedSignal() }));
    }
  }
}

/** Usage errors come before any command has parsed its options */
function wantsJson(argv: string[]): boolean {
  const end = argv.indexOf("--");
  return (end === -1 ? argv : argv.slice(0, end)).includes("--json");
}
