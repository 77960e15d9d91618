// forkd exec

import { Command } from "commander";
import { connect } from "../daemon.ts";
import { usageError } from "../errors.ts";
import { addPair, positiveNumber } from "../options.ts";
import { printJson, printLine } from "../output.ts";
import { fieldsOf, refuseWithoutTerminal, runProgram } from "../program-run.ts";
import { acceptTargets, refuseTargets } from "../targets.ts";

import type { Cli } from "../cli.ts";
import type { ProgramOptions } from "../program-run.ts";

type Options = ProgramOptions & { detach?: boolean };

export function execCommand(cli: Cli): Command {
  const command = new Command("exec")
    .description("run a program in a sandbox; its output and its exit code become this command's own")
    .argument("[id]", "id or name")
    .argument("[command...]", "after --: the program and its arguments; no shell")
    .usage("[options] <id> -- <command...>")
    .option("-i, --interactive", "pass standard input on")
    .option("-t, --tty", "give it a terminal; with -i, this one")
    .option("-d, --detach", "leave it running and print its process id")
    .option("--tag <tag>", "name the process, for attach, signal and the API")
    .option("--timeout-secs <secs>", "end it after so many seconds; exit code 124 then", positiveNumber)
    .option("--env <key=value>", "environment; may be repeated", addPair)
    .option("--cwd <folder>", "working folder in the guest")
    .option("--user <name>", "user in the guest")
    .option("--json", "print the whole result as JSON");
  return acceptTargets(command).action(async (given: string | undefined, args: string[], opts: Options) => {
    const id = refuseTargets(command, given);
    if (args.length === 0) throw usageError("missing the program to run: forkd exec ID -- ls -l");
    if (opts.detach) {
      const forkd = await connect(cli);
      const info = await forkd.startProcess(id, args, { ...fieldsOf(opts), signal: cli.signal });
      if (cli.json) printJson(info);
      else printLine(String(info.id));
      return;
    }
    refuseWithoutTerminal(cli, opts);
    cli.exitCode = await runProgram(cli, await connect(cli), id, args, opts);
  });
}
