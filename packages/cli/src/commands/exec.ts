// forkd exec

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { usageError } from "../errors.ts";
import { addPair, positiveNumber } from "../options/values.ts";
import { printJson, printLine } from "../terminal/output.ts";
import { fieldsOf, refuseWithoutTerminal, runProgram } from "../guest/program-run.ts";
import { acceptGuestAddresses, refuseGuestAddresses } from "../legacy-options.ts";

import type { Cli } from "../cli.ts";
import type { ProgramOptions } from "../guest/program-run.ts";

type Options = ProgramOptions & { detach?: boolean };

export function execCommand(cli: Cli): Command {
  const command = new Command("exec")
    .description("run a program in a sandbox, with its output and exit code")
    .argument("[id]", "id or name")
    .argument("[command...]", "after --: the program and its arguments; no shell")
    .usage("[options] <id> -- <command...>")
    .option("-i, --interactive", "forward standard input")
    .option("-t, --tty", "give it a terminal; with -i, this one")
    .option("-d, --detach", "leave it running and print its process id")
    .option("--tag <tag>", "name the process, for attach, signal and the API")
    .option("--timeout-secs <secs>", "kill it after so many seconds, with exit code 124", positiveNumber)
    .option("--env <key=value>", "environment; may be repeated", addPair)
    .option("--cwd <folder>", "working folder in the guest")
    .option("--user <name>", "user in the guest")
    .option("--json", "print the whole result as JSON");
  return acceptGuestAddresses(command).action(async (given: string | undefined, args: string[], opts: Options) => {
    const id = refuseGuestAddresses(command, given);
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
