// What machines there can be.

import { ForkdError } from "../errors.ts";
import type { MachineShape } from "../vmm/driver.ts";
import { BASELINE_CPU, MACHINE } from "../vmm/qemu/args.ts";

const DEFAULT_MEMORY_MIB = 512;
const MAX_MEMORY_MIB = 1024 * 1024;

/** Throws BAD_REQUEST for one that cannot be */
export function machineShape(
  opts: { memoryMiB?: number | undefined; vcpus?: number | undefined },
  host: Pick<MachineShape, "engineVersion" | "accelerator">,
): MachineShape {
  const { memoryMiB = DEFAULT_MEMORY_MIB, vcpus = 1 } = opts;
  if (!Number.isInteger(memoryMiB) || memoryMiB < 64 || memoryMiB > MAX_MEMORY_MIB)
    throw new ForkdError("BAD_REQUEST", `Cannot make a machine with ${memoryMiB} MiB: at least 64 are needed.`);
  if (!Number.isInteger(vcpus) || vcpus < 1 || vcpus > 64)
    throw new ForkdError("BAD_REQUEST", `Cannot make a machine with ${vcpus} CPUs: 1 to 64 are possible.`);
  return { engine: "qemu", machine: MACHINE, cpu: BASELINE_CPU, vcpus, memoryMiB, ...host };
}
