// Options of the older forkd that only make sense with its root set-up. They are accepted, and one note says that they do nothing.

import { Option } from "commander";
import { printNote } from "./output.ts";

import type { Command } from "commander";

/** Hidden: the help shows what works */
export function acceptPlumbing(command: Command, flags: readonly string[]): Command {
  for (const flag of flags) command.addOption(new Option(flag).hideHelp());
  return command;
}

/** `flags` as they were declared, so that the note names them as they were typed */
export function notePlumbing(command: Command, flags: readonly string[], why = "forkd needs no root set-up"): void {
  const given = flags.map((flag) => new Option(flag)).filter((option) => command.getOptionValueSource(option.attributeName()) === "cli");
  if (given.length === 0) return;
  const names = given.map((option) => option.long ?? option.flags).join(", ");
  printNote(`Note: ${names} ${given.length === 1 ? "has" : "have"} no effect: ${why}.`);
}
