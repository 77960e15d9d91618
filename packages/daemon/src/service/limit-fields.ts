// Resource limits of a sandbox: conversion between requests, rows and the host's control groups.

import type { IsolationPolicy } from "@forkd/runtime/host/accelerators";
import type { HostLimits } from "@forkd/runtime/host/control-groups";
import type { Snapshot } from "@forkd/runtime/snapshot/store";
import { isolationOf, type Isolation } from "@forkd/runtime/vmm/driver";

const HOST_NAMES = {
  memory_limit_mib: "memoryMiB",
  cpu_limit: "cpus",
  cpu_weight: "cpuWeight",
  pids_limit: "pids",
  io_limit_mbps: "ioMBps",
} as const satisfies Record<string, keyof HostLimits>;

export type LimitName = keyof typeof HOST_NAMES;
/** null: no limit */
export type LimitFields = Record<LimitName, number | null>;
/** Limits in a request */
export type GivenLimits = { [K in LimitName]?: number | null | undefined };

/** Limits and isolation in a request */
export type GivenStart = GivenLimits & { isolation?: IsolationPolicy | undefined };

/** Facts that decide whether a VM may start, and with which limits; sandbox rows have the same fields */
export type Machine = { memory_mib: number; isolation: Isolation };

/** Machine of a fork of the snapshot */
export function machineOf({ manifest: { shape } }: Snapshot): Machine {
  return { memory_mib: shape.memoryMiB, isolation: isolationOf(shape.accelerator) };
}

export function limitFields(given: GivenLimits): LimitFields {
  const { cpu_limit = null, cpu_weight = null, pids_limit = null, io_limit_mbps = null } = given;
  // 0 means none, for compatibility with deeplethe/forkd
  return { memory_limit_mib: given.memory_limit_mib || null, cpu_limit, cpu_weight, pids_limit, io_limit_mbps };
}

/** Limits that the host must enforce for a machine of this size */
export function hostLimits(given: GivenLimits, memoryMiB: number): HostLimits {
  const fields = limitFields(given);
  const { memory_limit_mib: memory } = fields;
  return {
    // a limit at or above the machine's memory needs no enforcement: the guest cannot exceed it
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
