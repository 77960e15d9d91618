// forkd sh, and its alias shell

import { Command } from "commander";
import { connect } from "../daemon/connect.ts";
import { usageError } from "../errors.ts";
import { addPair } from "../options/values.ts";
import { runProgram } from "../guest/program-run.ts";

import type { Cli } from "../cli.ts";

/** Login shell: bash if the image has it */
const ANY_SHELL = ["/bin/sh", "-c", "if command -v bash >/dev/null; then exec bash; fi; exec sh"];

type Options = { env?: Record<string, string>; cwd?: string; user?: string };

export function shCommand(cli: Cli): Command {
  return build(cli, "sh");
}

export function shellCommand(cli: Cli): Command {
  return build(cli, "shell");
}

function build(cli: Cli, name: string): Command {
  return new Command(name)
    .description("a shell in a sandbox, at this terminal: bash where the image has it, else sh")
    .argument("<id>", "id or name")
    .argument("[shell...]", "after --: another shell or program")
    .usage("[options] <id> [-- <shell...>]")
    .option("--env <key=value>", "environment; may be repeated", addPair)
    .option("--cwd <folder>", "working folder in the guest")
    .option("--user <name>", "user in the guest")
    .action(async (id: string, shell: string[], opts: Options) => {
      if (!process.stdin.isTTY) throw usageError("a shell needs a terminal; for a script use forkd exec -i ID -- sh");
      const args = shell.length > 0 ? shell : ANY_SHELL;
      cli.exitCode = await runProgram(cli, await connect(cli), id, args, { ...opts, interactive: true, tty: true });
    });
}
