// forkd completion: scripts for the shells, made from the commands themselves.

import { Argument, Command } from "commander";
import { printLine } from "../output.ts";

import type { Cli } from "../cli.ts";

type Shell = "bash" | "zsh" | "fish";

export function completionCommand(_cli: Cli): Command {
  return new Command("completion")
    .description("print a completion script: source it from your shell's start-up file")
    .addArgument(new Argument("<shell>", "which shell").choices(["bash", "zsh", "fish"]))
    .action(async (shell: Shell, _opts: unknown, command: Command) => {
      const { completionScript } = await import("../completion-script.ts");
      printLine(completionScript(shell, rootOf(command)));
    });
}

function rootOf(command: Command): Command {
  return command.parent ? rootOf(command.parent) : command;
}
