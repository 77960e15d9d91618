// What an engine can do. A second engine is a second folder beside qemu/ and touches nothing else.

import type { Layer } from "../disk/layer.ts";
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

/** Whether VMMs are kept in namespaces of their own, or why not */
export type ConfinementState = { kind: "namespaces"; reason: null } | { kind: "none"; reason: string };

/**
 * Files and sockets one VM works with. It writes in its own folders only: one inside `dir`, and the one of its disk's active layer.
 * A confined VMM sees no others: an engine derives from these what it shows.
 */
export type VmFiles = {
  /** folder of this VM: sockets, logs; the VMM writes only in a folder inside it */
  dir: string;
  /** null: none, the guest stays in its initramfs */
  rootfs: string | null;
  memory: string;
  /** null: none, what the guest writes stays in its memory */
  disk: VmDisk | null;
};

export type VmDisk = {
  sizeMiB: number;
  /** only read, lowest first */
  below: readonly Layer[];
  /** takes the writes; in a folder of this VM alone, which later gets the layers that follow it */
  active: Layer;
};

export type BootSpec = VmFiles & { shape: MachineShape; guestKernel: string; initrd: string; commandLine: string };

export type RestoreSpec = VmFiles & {
  shape: MachineShape;
  deviceState: string;
  /** folder of the control group in which it runs */
  group?: string | undefined;
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
  saveDeviceState(): Promise<void>;
  /** gives what was saved last to a file that does not exist; the VM need not be paused, nor alive */
  takeDeviceState(to: string): Promise<void>;
  resume(): Promise<void>;
  /** resolves when a held VM has loaded its state */
  loaded(): Promise<void>;
  /** opens the control channel ahead of time, so that pause() costs one round trip */
  prepare(): Promise<void>;
  /** of a VM that has a disk */
  readonly disk: DiskControl;
  /** whether its CPUs run */
  isRunning(): Promise<boolean>;
  /** what the guest wrote to its console since the last call, or the end of it */
  drainConsole(): Promise<Buffer>;
  /** ends the VMM process and waits for it */
  kill(): Promise<void>;
  /** lets go of it without ending it */
  detach(): void;
}

/** The layers of a running VM's disk, by id */
export interface DiskControl {
  /** the one that takes the writes */
  active(): Promise<string>;
  /** all that are open */
  known(): Promise<string[]>;
  /** opens an empty layer in advance, so that freeze() costs one round trip */
  add(layer: Layer): Promise<void>;
  /** from now on the active layer is only read, and the added one above it takes the writes */
  freeze(active: string, next: string): Promise<void>;
  /** closes a layer that is not part of the disk, or no more */
  drop(id: string): Promise<void>;
  /** puts the active layer onto one that holds the same as all that are below it now */
  restack(active: Layer, onto: Layer): Promise<void>;
}

export type VmExit = {
  code: number | null;
  signal: string | null;
  log: string;
  /** the end of what a booting guest wrote */
  console: string;
};

export interface Engine {
  boot(spec: BootSpec): Promise<Vm>;
  restore(spec: RestoreSpec): Promise<Vm>;
  /** a VM that an earlier process of ours started */
  adopt(id: ProcessId, dir: string): Promise<Vm>;
}
