// The machine a figure was measured on; printed with every figure.

import { availableParallelism, cpus, release, totalmem } from "node:os";

/** Without VMs */
export type Host = {
  cpu: string;
  cores: number;
  memory_gib: number;
  host_kernel: string;
  date: string;
};

export type Machine = Host & { qemu: string; accelerator: string };

export function describeMachine(runtime: { engine: { version: string }; accelerator: { accelerator: string } }): Machine {
  return { ...describeHost(), qemu: runtime.engine.version, accelerator: runtime.accelerator.accelerator };
}

export function describeHost(): Host {
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: availableParallelism(),
    memory_gib: Math.round(totalmem() / 1024 ** 3),
    host_kernel: release(),
    date: new Date().toISOString(),
  };
}
