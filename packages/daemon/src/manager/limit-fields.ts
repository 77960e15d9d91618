// Limits of one sandbox: as requests and rows name them, and as the host applies them.

import type { HostLimits } from "../host/control-groups.ts";

const HOST_NAMES = {
  memory_limit_mib: "memoryMiB",
  cpu_limit: "cpus",
  cpu_weight: "cpuWeight",
  pids_limit: "pids",
  io_limit_mbps: "ioMBps",
} as const satisfies Record<string, keyof HostLimits>;

export type LimitName = keyof typeof HOST_NAMES;
/** null: none */
export type LimitFields = Record<LimitName, number | null>;
/** As a request gives them */
export type GivenLimits = { [K in LimitName]?: number | null | undefined };

export function limitFields(given: GivenLimits): LimitFields {
  const { memory_limit_mib = null, cpu_limit = null, cpu_weight = null, pids_limit = null, io_limit_mbps = null } = given;
  return { memory_limit_mib, cpu_limit, cpu_weight, pids_limit, io_limit_mbps };
}

/** What is left to the host to do for a machine of this size */
export function hostLimits(given: GivenLimits, memoryMiB: number): HostLimits {
  const fields = limitFields(given);
  const { memory_limit_mib: memory } = fields;
  return {
    // a guest cannot have more memory than its machine, so a limit at or above that is kept by itself
    memoryMiB: memory !== null && memory < memoryMiB ? memory : null,
    cpus: fields.cpu_limit,
    cpuWeight: fields.cpu_weight,
    pids: fields.pids_limit,
    ioMBps: fields.io_limit_mbps,
  };
}

export function limitName(host: keyof HostLimits): LimitName {
  const names = Object.entries(HOST_NAMES) as [LimitName, keyof HostLimits][];
  return names.find(([, name]) => name === host)?.[0] ?? "memory_limit_mib";
}
