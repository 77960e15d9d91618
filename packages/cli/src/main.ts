// One run of the CLI: parses, acts, reports, ends.

import { CommanderError } from "commander";
import { exit, installSignals, reportFailure, reportUsage } from "./exit.ts";
import { ignoreBrokenPipes } from "./terminal/output.ts";
import { buildProgram, verbOf } from "./program.ts";

import type { Cli } from "./cli.ts";

/** Verbs whose last arguments are a command line for the guest */
const WITH_COMMAND_LINE = new Set(["exec", "run", "eval", "sh", "shell"]);

/** Never returns normally: ends the process with the exit code */
export async function main(argv: string[]): Promise<void> {
  ignoreBrokenPipes();
  const signals = installSignals();
  const cli: Cli = {
    signal: signals.signal,
    json: false,
    exitCode: 0,
    daemonUrl: undefined,
    daemonToken: undefined,
    project: undefined,
    autostart: true,
  };
  const verb = verbOf(argv.slice(2));
  try {
    const program = await buildProgram(cli, { verb });
    await program.parseAsync(argv);
    exit(cli.exitCode);
  } catch (error) {
    if (error instanceof CommanderError) {
      exit(error.exitCode === 0 ? 0 : reportUsage(error, { json: wantsJson(argv), hint: usageHint(error, verb, argv) }));
    } else {
      exit(reportFailure(error, { json: cli.json, interruptedBy: signals.receivedSignal(), isViewer: cli.isViewer }));
    }
  }
}

/** Usage errors can occur before a command has parsed its options */
function wantsJson(argv: string[]): boolean {
  const end = argv.indexOf("--");
  return (end === -1 ? argv : argv.slice(0, end)).includes("--json");
}

function usageHint(error: CommanderError, verb: string | undefined, argv: string[]): string {
  if (error.code === "commander.unknownOption" && verb && WITH_COMMAND_LINE.has(verb) && !argv.includes("--"))
    return `Put '--' before what is to be run: forkd ${verb} … -- ls -l.`;
  return error.code === "commander.unknownCommand" || !verb ? "Run 'forkd --help'." : `Run 'forkd ${verb} --help'.`;
}
