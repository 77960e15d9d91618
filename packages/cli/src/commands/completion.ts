// forkd completion: scripts for the shells, made from the commands themselves.

import { Argument, Command } from "commander";
import { printLine } from "../output.ts";

import type { Cli } from "../cli.ts";

type Shell = "bash" | "zsh" | "fish";

export function completionCommand(cli: Cli): Command {
  return new Command("completion")
    .description("print a completion script: source it from your shell's start-up file")
    .addArgument(new Argument("<shell>", "which shell").choices(["bash", "zsh", "fish"]))
    .action(async (shell: Shell) => {
      const { completionScript } = await import("../completion-script.ts");
      const { buildProgram } = await import("../program.ts");
      printLine(completionScript(shell, await buildProgram(cli, "all")));
    });
}
