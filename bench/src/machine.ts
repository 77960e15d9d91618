// The machine a figure was measured on; printed with every figure.

import { availableParallelism, cpus, release, totalmem } from "node:os";

export type Machine = {
  cpu: string;
  cores: number;
  memory_gib: number;
  host_kernel: string;
  qemu: string;
  accelerator: string;
  date: string;
};

export function describeMachine(runtime: { engine: { version: string }; accelerator: { accelerator: string } }): Machine {
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: availableParallelism(),
    memory_gib: Math.round(totalmem() / 1024 ** 3),
    host_kernel: release(),
    qemu: runtime.engine.version,
    accelerator: runtime.accelerator.accelerator,
    date: new Date().toISOString(),
  };
}
