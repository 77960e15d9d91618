// Registers the commands, nothing else. A new verb is a new file in commands/ and one line here.

import { Command } from "commander";
import { benchCommand } from "./commands/bench.ts";
import { completionCommand } from "./commands/completion.ts";
import { demoCommand } from "./commands/demo.ts";
import { doctorCommand } from "./commands/doctor.ts";
import { imageCommand } from "./commands/image.ts";
import { versionCommand } from "./commands/version.ts";
import { VERSION } from "./version.ts";

import type { Cli } from "./cli.ts";

const COMMANDS: ((cli: Cli) => Command)[] = [benchCommand, demoCommand, doctorCommand, imageCommand, completionCommand, versionCommand];

export function buildProgram(cli: Cli): Command {
  const program = new Command("forkd")
    .description("fork() for virtual machines: boot one, warm it, freeze it, fork it as often as you like.")
    .version(VERSION, "-V, --version", "print the version")
    .option("--guest-kernel <file>", "boot this guest kernel (default: FORKD_GUEST_KERNEL, else the distribution's newest)")
    .helpOption("-h, --help", "print this help")
    .helpCommand("help [command]", "print the help of a command")
    .showSuggestionAfterError()
    .hook("preAction", (_program, command) => {
      cli.json = command.opts()["json"] === true;
      const guestKernel: unknown = command.optsWithGlobals()["guestKernel"];
      if (typeof guestKernel === "string") process.env["FORKD_GUEST_KERNEL"] = guestKernel;
    });
  for (const command of COMMANDS) program.addCommand(command(cli));
  throwInsteadOfExit(program);
  return program;
}

/** addCommand does not inherit these settings, and a command must never end the process by itself */
function throwInsteadOfExit(command: Command): void {
  command.exitOverride().configureOutput({ outputError: () => {} });
  for (const child of command.commands) throwInsteadOfExit(child);
}
