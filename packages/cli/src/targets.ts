// Older forms named a guest by address or network namespace. Here a sandbox has an id, and the way to it is the daemon's.

import { Option } from "commander";
import { usageError } from "./errors.ts";

import type { Command } from "commander";

const FLAGS = ["--target <address>", "--child <netns>"];

export function acceptTargets(command: Command): Command {
  for (const flag of FLAGS) command.addOption(new Option(flag).hideHelp());
  return command;
}

/** The id, or a usage error that says what is needed */
export function refuseTargets(command: Command, id: string | undefined): string {
  const opts: Record<string, unknown> = command.opts();
  const why = "guests have no address of their own. Name a sandbox by its id or name; 'forkd ls' lists them";
  if (opts["target"] !== undefined) throw usageError(`--target is not possible: ${why}.`);
  if (opts["child"] !== undefined) throw usageError(`--child is not possible: ${why}.`);
  if (id === undefined) throw usageError("missing required argument 'id'");
  return id;
}
