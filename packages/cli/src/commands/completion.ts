// forkd completion: completion scripts for shells, generated from the commands, and the names that the scripts request.

import { Argument, Command } from "commander";
import { KINDS } from "../completion/kinds.ts";
import { printPlain, printLine } from "../terminal/output.ts";

import type { Cli } from "../cli.ts";
import type { Kind } from "../completion/kinds.ts";

type Shell = "bash" | "zsh" | "fish";

export function completionCommand(cli: Cli): Command {
  return new Command("completion")
    .description("print a completion script: source it from your shell's start-up file. It also completes names of existing objects")
    .addArgument(new Argument("<shell>", "which shell").choices(["bash", "zsh", "fish"]))
    .addCommand(candidatesCommand(cli), { hidden: true })
    .action(async (shell: Shell) => {
      const { completionScript } = await import("../completion/script.ts");
      const { buildProgram } = await import("../program.ts");
      printLine(completionScript(shell, await buildProgram(cli, "all")));
    });
}

function candidatesCommand(cli: Cli): Command {
  return new Command("candidates")
    .description("print the names of existing objects, one per line, for the completion scripts")
    .addArgument(new Argument("<kind>", "of what").choices(KINDS))
    .action(async (kind: Kind) => {
      const { candidates } = await import("../completion/candidates.ts");
      for (const name of await candidates(cli, kind)) printPlain(name);
    });
}
