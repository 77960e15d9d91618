// The size of a machine and of its disk: defaults and limits.

import { ForkdError } from "../errors.ts";
import type { MachineShape } from "../vmm/driver.ts";

export const DEFAULT_MEMORY_MIB = 512;
const MAX_MEMORY_MIB = 1024 * 1024;
const MIN_DISK_MIB = 16;
const MAX_DISK_MIB = 1024 * 1024;

/** Throws BAD_REQUEST for an invalid size */
export function machineShape(
  opts: { memoryMiB?: number | undefined; vcpus?: number | undefined; hugepages?: boolean | undefined },
  host: Omit<MachineShape, "memoryMiB" | "vcpus" | "hugepages">,
): MachineShape {
  const { memoryMiB = DEFAULT_MEMORY_MIB, vcpus = 1 } = opts;
  if (!Number.isInteger(memoryMiB) || memoryMiB < 64 || memoryMiB > MAX_MEMORY_MIB)
    throw new ForkdError("BAD_REQUEST", `Cannot make a machine with ${memoryMiB} MiB: at least 64 are needed.`);
  if (!Number.isInteger(vcpus) || vcpus < 1 || vcpus > 64)
    throw new ForkdError("BAD_REQUEST", `Cannot make a machine with ${vcpus} CPUs: 1 to 64 are possible.`);
  return { ...host, vcpus, memoryMiB, ...(opts.hugepages ? { hugepages: true } : {}) };
}

/** null: no disk. Throws BAD_REQUEST for an invalid size */
export function diskSize(diskMiB: number | undefined): number | null {
  if (diskMiB === undefined) return null;
  if (!Number.isInteger(diskMiB) || diskMiB < MIN_DISK_MIB || diskMiB > MAX_DISK_MIB)
    throw new ForkdError("BAD_REQUEST", `Cannot make a disk of ${diskMiB} MiB: ${MIN_DISK_MIB} to ${MAX_DISK_MIB} are possible.`);
  return diskMiB;
}
