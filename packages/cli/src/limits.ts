// Options for the limits that the host holds a sandbox to.

import { positiveInteger, positiveNumber } from "./options.ts";

import type { LimitOptions } from "forkd";
import type { Command } from "commander";

export function acceptLimits(command: Command): Command {
  return command
    .option("--memory-limit-mib <mib>", "most memory of the host that it may take", positiveInteger)
    .option("--cpu-limit <cpus>", "most CPU time, in CPUs: 0.5, 2", positiveNumber)
    .option("--cpu-weight <weight>", "share of the CPUs when several want them, 1 to 10000 (usual: 100)", positiveInteger)
    .option("--pids-limit <count>", "most threads of its VMM", positiveInteger)
    .option("--io-limit-mbps <rate>", "most megabytes a second from and to the disk of the store", positiveNumber);
}

export function limitsOf(opts: LimitOptions): LimitOptions {
  const { memoryLimitMib, cpuLimit, cpuWeight, pidsLimit, ioLimitMbps } = opts;
  return { memoryLimitMib, cpuLimit, cpuWeight, pidsLimit, ioLimitMbps };
}
