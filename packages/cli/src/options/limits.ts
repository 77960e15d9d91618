// Options for resource limits of a sandbox.

import { positiveInteger, positiveNumber, wholeNumber } from "./values.ts";

import type { LimitOptions } from "forkd";
import type { Command } from "commander";

export function acceptLimits(command: Command): Command {
  return command
    .option("--memory-limit-mib <mib>", "limit of host memory; 0 for no limit", wholeNumber)
    .option("--cpu-limit <cpus>", "limit of CPU time, in CPUs: 0.5, 2", positiveNumber)
    .option("--cpu-weight <weight>", "weight when sandboxes compete for CPUs, 1 to 10000 (default: 100)", positiveInteger)
    .option("--pids-limit <count>", "limit of threads of its VMM", positiveInteger)
    .option("--io-limit-mbps <rate>", "limit of megabytes per second, for reads and for writes, on the disk of the store", positiveNumber);
}

export function limitsOf(opts: LimitOptions): LimitOptions {
  const { memoryLimitMib, cpuLimit, cpuWeight, pidsLimit, ioLimitMbps } = opts;
  return { memoryLimitMib, cpuLimit, cpuWeight, pidsLimit, ioLimitMbps };
}
