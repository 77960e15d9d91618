// forkd exec

import { Command } from "commander";
import { connect } from "../daemon.ts";
import { usageError } from "../errors.ts";
import { addPair, positiveNumber } from "../options.ts";
import { printJson } from "../output.ts";
import { passThrough, runProgram } from "../program-run.ts";
import { acceptTargets, refuseTargets } from "../targets.ts";

import type { Cli } from "../cli.ts";

type Options = { timeoutSecs: number; env?: Record<string, string>; cwd?: string; user?: string; interactive?: boolean };

export function execCommand(cli: Cli): Command {
  const command = new Command("exec")
    .description("run a program in a sandbox; its output and its exit code become this command's own")
    .argument("[id]", "id or name")
    .argument("[command...]", "after --: the program and its arguments; no shell")
    .usage("[options] <id> -- <command...>")
    .option("--timeout-secs <secs>", "end it after so many seconds; exit code 124 then", positiveNumber, 30)
    .option("--env <key=value>", "environment; may be repeated", addPair)
    .option("--cwd <folder>", "working folder in the guest")
    .option("--user <name>", "user in the guest")
    .option("-i, --interactive", "pass standard input on")
    .option("--json", "print the whole result as JSON");
  return acceptTargets(command).action(async (given: string | undefined, args: string[], opts: Options) => {
    const id = refuseTargets(command, given);
    if (args.length === 0) throw usageError("missing the program to run: forkd exec ID -- ls -l");
    const forkd = await connect(cli);
    const result = await runProgram(cli, forkd, id, args, opts);
    if (cli.json) {
      printJson(result);
      cli.exitCode = result.exit_code;
    } else {
      cli.exitCode = await passThrough(result, opts.timeoutSecs);
    }
  });
}
