// Options of the older forkd: those of its root set-up are accepted with a note, those that address a guest are refused.

import { Option } from "commander";
import { usageError } from "./errors.ts";
import { printNote } from "./terminal/output.ts";

import type { Command } from "commander";

const FLAGS = ["--target <address>", "--child <netns>"];

/** Hidden: the help lists only options that have an effect */
export function acceptLegacyOptions(command: Command, flags: readonly string[]): Command {
  for (const flag of flags) command.addOption(new Option(flag).hideHelp());
  return command;
}

/** `flags` in their declared form, so that the note names them as typed */
export function noteLegacyOptions(command: Command, flags: readonly string[], why = "forkd needs no root set-up"): void {
  const given = flags.map((flag) => new Option(flag)).filter((option) => command.getOptionValueSource(option.attributeName()) === "cli");
  if (given.length === 0) return;
  const names = given.map((option) => option.long ?? option.flags).join(", ");
  printNote(`Note: ${names} ${given.length === 1 ? "has" : "have"} no effect: ${why}.`);
}

export function acceptGuestAddresses(command: Command): Command {
  for (const flag of FLAGS) command.addOption(new Option(flag).hideHelp());
  return command;
}

/** The id, or a usage error */
export function refuseGuestAddresses(command: Command, id: string | undefined): string {
  const opts: Record<string, unknown> = command.opts();
  const why = "guests have no address of their own. Name a sandbox by its id or name; 'forkd ls' lists them";
  if (opts["target"] !== undefined) throw usageError(`--target is not possible: ${why}.`);
  if (opts["child"] !== undefined) throw usageError(`--child is not possible: ${why}.`);
  if (id === undefined) throw usageError("missing required argument 'id'");
  return id;
}
