// Options for the quotas of a project.

import { InvalidArgumentError, type Command } from "commander";
import { wholeNumber } from "./values.ts";

import type { UpdateProjectOptions } from "forkd";

type Limits = Omit<UpdateProjectOptions, "signal" | "timeoutMs">;

/** Commander turns null into "", so the word stands for it */
type Given = number | "none";

export type QuotaFlags = { [K in keyof Limits]?: Given };

const FLAGS: readonly (keyof Limits)[] = [
  "sandboxes",
  "suspended",
  "vcpus",
  "memoryMib",
  "snapshots",
  "storageBytes",
  "forksPerMinute",
  "egressBytes",
  "requestsPerSecond",
];

/** Each is a number, or none */
export function acceptQuota(command: Command): Command {
  return command
    .option("--sandboxes <count>", "running and paused sandboxes; none for no limit, as with each of these", limit)
    .option("--suspended <count>", "suspended sandboxes", limit)
    .option("--vcpus <count>", "CPUs of running sandboxes", limit)
    .option("--memory-mib <mib>", "memory of running sandboxes", limit)
    .option("--snapshots <count>", "snapshots", limit)
    .option("--storage-bytes <bytes>", "disk space of snapshots and disks", limit)
    .option("--forks-per-minute <count>", "forks and resumptions in a minute", limit)
    .option("--egress-bytes <bytes>", "bytes out of its sandboxes in a calendar month", limit)
    .option("--requests-per-second <count>", "requests in a second, without those of operators", limit);
}

/** Only the given ones */
export function quotaOf(flags: QuotaFlags): Limits {
  const given = FLAGS.filter((flag) => flags[flag] !== undefined);
  return Object.fromEntries(given.map((flag) => [flag, flags[flag] === "none" ? null : flags[flag]]));
}

export function shownLimit(limit: number | null): string {
  return limit === null ? "-" : String(limit);
}

function limit(text: string): Given {
  if (text === "none") return text;
  try {
    return wholeNumber(text);
  } catch {
    throw new InvalidArgumentError("It must be a whole number, or none.");
  }
}
