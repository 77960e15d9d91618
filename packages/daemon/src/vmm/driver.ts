// What an engine can do. A second engine is a second folder beside qemu/ and touches nothing else.

import type { ProcessId } from "../util/process-id.ts";

/** The shape of a machine: everything that must be equal between a snapshot and its forks */
export type MachineShape = {
  engine: "qemu";
  /** version of the engine that made the snapshot */
  engineVersion: string;
  machine: string;
  cpu: string;
  accelerator: "kvm" | "tcg";
  vcpus: number;
  memoryMiB: number;
};

/** Files and sockets one VM works with */
export type VmFiles = {
  /** folder of this VM: sockets, logs */
  dir: string;
  /** null: none, the guest stays in its initramfs */
  rootfs: string | null;
  memory: string;
};

export type BootSpec = VmFiles & { shape: MachineShape; guestKernel: string; initrd: string; commandLine: string };

export type RestoreSpec = VmFiles & {
  shape: MachineShape;
  deviceState: string;
  /** "run": goes on by itself as soon as it is loaded; "hold": waits for resume() */
  start: "run" | "hold";
};

/** One VM */
export interface Vm {
  readonly pid: number;
  /** with the pid this names the process for ever */
  readonly startTime: string;
  /** Unix socket of the agent's port; connectable as soon as the VM exists */
  readonly agentSocket: string;
  /** the VMM's own log */
  readonly log: string;
  /** settles when the VMM process has ended, with the end of its log */
  readonly exited: Promise<VmExit>;
  /** stops the CPUs; resolves when guest memory no longer changes */
  pause(): Promise<void>;
  /** device state only, no memory; the VM is paused */
  saveDeviceState(path: string): Promise<void>;
  resume(): Promise<void>;
  /** resolves when a held VM has loaded its state */
  loaded(): Promise<void>;
  /** opens the control channel ahead of time, so that pause() costs one round trip */
  prepare(): Promise<void>;
  /** whether its CPUs run */
  isRunning(): Promise<boolean>;
  /** what the guest wrote to its console since the last call, or the end of it */
  drainConsole(): Promise<Buffer>;
  /** ends the VMM process and waits for it */
  kill(): Promise<void>;
  /** lets go of it without ending it */
  detach(): void;
}

export type VmExit = { code: number | null; signal: string | null; log: string };

export interface Engine {
  boot(spec: BootSpec): Promise<Vm>;
  restore(spec: RestoreSpec): Promise<Vm>;
  /** a VM that an earlier process of ours started */
  adopt(id: ProcessId, dir: string): Promise<Vm>;
}
