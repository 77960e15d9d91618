// The engine interface. A second engine needs a folder beside qemu/ and a line in engine.ts; no code outside of vmm/
// names an engine.

import type { Layer } from "../disk/layer.ts";
import type { ProcessId } from "../util/process-id.ts";
import type { WardenSource } from "../warden/source.ts";

export type AcceleratorChoice = {
  accelerator: "kvm" | "tcg";
  reason: string;
  /** how to make KVM work on this host, if known */
  advice?: string | undefined;
  /** why the memory of a VM with KVM is not taken from a frozen copy; null: it is. Absent: unknown, so it is not */
  freezeObstacle?: string | null | undefined;
};

/** Machine configuration that must be equal in a snapshot and its forks */
export type MachineShape = {
  /** name of the engine that made it */
  engine: string;
  /** version of the engine that made the snapshot */
  engineVersion: string;
  machine: string;
  /** "few": no SATA, SMBus or keyboard controller. Absent: all devices of the machine type, as in older snapshots */
  devices?: "few" | undefined;
  cpu: string;
  /**
   * processor vendor, with KVM: the guest kernel patches itself for it at boot. Absent: emulated, or unknown as in
   * older snapshots
   */
  vendor?: string | undefined;
  /** processor features visible to the guest, with KVM */
  features?: string[] | undefined;
  accelerator: "kvm" | "tcg";
  vcpus: number;
  memoryMiB: number;
  /** forks map a copy of its memory in huge pages */
  hugepages?: true | undefined;
};

/** Boundary between guest and host: the processor ("kvm"), or the engine's translator, which is not a security boundary */
export type Isolation = "kvm" | "emulated";

export function isolationOf(accelerator: MachineShape["accelerator"]): Isolation {
  return accelerator === "kvm" ? "kvm" : "emulated";
}

/** Whether VMMs run in their own namespaces, or the reason why not */
export type ConfinementState = { kind: "namespaces"; reason: null; calls: CallFilter } | { kind: "none"; reason: string };

/** System call filter of a confined VMM: an allow list, or a deny list and the reason for it */
export type CallFilter = { filter: "listed"; reason: null } | { filter: "deny"; reason: string };

/**
 * Files and sockets of one VM. The VMM writes only to a folder inside `dir` and to the folder of its disk's active
 * layer. A confined VMM sees no other files: the engine derives its view from these.
 */
export type VmFiles = {
  /** folder of this VM: sockets, logs; the VMM writes only in a folder inside it */
  dir: string;
  /** null: no root file system, the guest stays in its initramfs */
  rootfs: string | null;
  memory: string;
  /** null: no disk, the guest's writes stay in its memory */
  disk: VmDisk | null;
};

export type VmDisk = {
  sizeMiB: number;
  /** read-only layers, lowest first */
  below: readonly Layer[];
  /** writable layer; its folder belongs to this VM alone and later contains the layers above it */
  active: Layer;
};

export type BootSpec = VmFiles & { shape: MachineShape; guestKernel: string; initrd: string; commandLine: string };

export type RestoreSpec = VmFiles & {
  shape: MachineShape;
  deviceState: string;
  /** folder of its control group */
  group?: string | undefined;
  /** "run": resumes as soon as the state is loaded; "hold": waits for resume() */
  start: "run" | "hold";
  /** allows hold(), clone() and fork() of this VM; as "zygote" it has room for the code that its clones translate */
  clonable?: "zygote" | "sandbox" | undefined;
  /** allows freeze() of this VM */
  freezable?: boolean | undefined;
};

/** A clone: same machine, its own folder. The file of its active layer is created as a copy of the original's */
export type CloneSpec = Pick<RestoreSpec, "dir" | "memory" | "group"> & { active: Layer | null };

/** A copy of a VM that runs on. `next`: layer that is active when it is copied, and empty; the copy's is made from it */
export type ForkSpec = CloneSpec & { next: Layer | null };

/** A process that has the memory of a VM as it was at one moment, and nothing else */
export type FrozenCopy = {
  readonly pid: number;
  /** ends it and waits for that */
  end(): Promise<void>;
};

/** How the VMM started: by loading a snapshot, or as a copy of a VMM that had loaded it */
export type StartedBy = "restore" | "clone";

/** A VM */
export interface Vm {
  readonly pid: number;
  /** with the pid, identifies the process */
  readonly startTime: string;
  /**
   * Unix socket of the agent's port; accepts connections as soon as the VM exists. A restored VM loads its state when there
   * is a connection
   */
  readonly agentSocket: string;
  /** the VMM's own log */
  readonly log: string;
  /** end of the log, for error messages */
  lastLog(): Promise<string>;
  readonly startedBy: StartedBy;
  /** whether fork() may be tried */
  readonly isClonable: boolean;
  /** whether freeze() may be tried */
  readonly isFreezable: boolean;
  /** console file of a booting guest; a fork keeps its console in the VMM, see drainConsole() */
  readonly console: string;
  /** resolves with the end of the log when the VMM process has ended */
  readonly exited: Promise<VmExit>;
  /** Stops the CPUs; resolves when guest memory no longer changes. Reading from the agent's port changes it again */
  pause(): Promise<void>;
  /** saves the device state without memory; the VM must be paused */
  saveDeviceState(): Promise<void>;
  /** writes the last saved state to a new file; the VM may be running or have ended */
  takeDeviceState(to: string): Promise<void>;
  resume(): Promise<void>;
  /** resolves when a held VM has loaded its state */
  loaded(): Promise<void>;
  /** from now on, ends the VM if the VMM stops it without a request, with the reason in `exited` */
  watch(): void;
  /** opens the control channel in advance, so that pause() takes one round trip */
  prepare(): Promise<void>;
  /** for a VM with a disk */
  readonly disk: DiskControl;
  /** whether its CPUs run; throws VMM_EXITED if the guest has ended */
  isRunning(): Promise<boolean>;
  /** console output since the last call, or the last part of it */
  drainConsole(): Promise<Buffer>;
  /** ends the VMM process and waits for it */
  kill(): Promise<void>;
  /** releases the VM without ending it */
  detach(): void;
}

/** The layers of a running VM's disk, by id */
export interface DiskControl {
  /** id of the active layer */
  active(): Promise<string>;
  /** ids of all open layers */
  known(): Promise<string[]>;
  /** opens an empty layer in advance, so that freeze() takes one round trip */
  add(layer: Layer): Promise<void>;
  /** makes the active layer read-only and the added one, above it, active */
  freeze(active: string, next: string): Promise<void>;
  /** from now on the VMM can only read the layer that was active before this one */
  seal(active: Layer): Promise<void>;
  /** closes a layer that is not, or no longer, part of the disk */
  drop(id: string): Promise<void>;
  /** replaces all layers below the active one by a layer with the same content */
  restack(active: Layer, onto: Layer): Promise<void>;
}

export type VmExit = {
  code: number | null;
  signal: string | null;
  log: string;
  /** last part of the console of a booting guest, or of a fork whose guest ended; else empty */
  console: string;
  /** why the VMM or the guest kernel stopped, if the VMM reported it */
  failure: string | null;
  /** the disk was full when the guest's memory file needed a page: the host kernel sends SIGBUS */
  isOutOfSpace: boolean;
};

/** Reason why a snapshot cannot be forked, as the end of a sentence, and a hint */
export type Refusal = { why: string; hint: string };

/** The processor of a machine */
export type CpuChoice = Pick<MachineShape, "cpu" | "vendor" | "features">;

/** Requirements of a packed snapshot on the engine */
export type PackNeeds = Omit<MachineShape, "vcpus" | "memoryMiB" | "devices" | "hugepages">;

/** A configured engine, which runs VMs */
export interface Engine {
  readonly name: string;
  readonly version: string;
  /** name and version, for display */
  readonly description: string;
  /** properties of new machines that do not depend on their size */
  readonly newMachine: Pick<MachineShape, "engine" | "engineVersion" | "machine" | "devices">;
  /** kernel command line for this machine; "trial": with full console output */
  commandLine(accelerator: MachineShape["accelerator"], purpose?: "trial"): string;
  /** detects the features of the host's processor, which refusal() needs with KVM */
  prepare(signal?: AbortSignal): Promise<void>;
  /** CPU of a new machine: "baseline", "host" or a model; default: the best. Throws CPU_UNAVAILABLE */
  cpuFor(asked: string | undefined): Promise<CpuChoice>;
  /** reason why a snapshot of this engine cannot be forked on this host; undefined: compatible */
  refusal(shape: MachineShape): Refusal | undefined;
  /** the same for a pack, with more checks: it comes from another host */
  packRefusal(needs: PackNeeds): Promise<Refusal | undefined>;
  /** writes the content of all layers to one new layer in a folder; a single layer is hard-linked */
  flatten(layers: readonly Layer[], sizeMiB: number, dir: string): Promise<Layer>;
  boot(spec: BootSpec): Promise<Vm>;
  restore(spec: RestoreSpec): Promise<Vm>;
  /** reason why VMs cannot be cloned; null: they can */
  readonly cloneObstacle: string | null;
  /** Stops a clonable VM permanently. It must be paused, with its channels closed. On error it is unchanged */
  hold(vm: Vm): Promise<void>;
  /** copies a held VM; the copy is paused, and if the held VM was made by fork(), it waits for a connection to its agent's port */
  clone(zygote: Vm, spec: CloneSpec): Promise<Vm>;
  /** readies a clonable VM for fork() with the same spec, while it runs: what can be done before it is paused */
  prepareFork(vm: Vm, spec: ForkSpec): Promise<void>;
  /**
   * Copies a paused clonable VM, which can be resumed at once. The copy is paused and its memory does not change: nothing
   * reaches its agent's port. It can be saved, and held to be cloned. On error the VM is unchanged
   */
  fork(vm: Vm, spec: ForkSpec): Promise<Vm>;
  /** reason why VMs cannot be copied by freeze(); null: they can, as a trial with KVM has shown */
  readonly freezeObstacle: string | null;
  /** readies a freezable VM for freeze() while it runs; `bytes` is the size of its memory, a mapping of the file `path` */
  prepareFreeze(vm: Vm, memory: { path: string; bytes: number }): Promise<void>;
  /** Copies the memory of a paused freezable VM, which can be resumed at once. On error the VM is unchanged */
  freeze(vm: Vm): Promise<FrozenCopy>;
  /** a VM that an earlier process started; `memory` is a path on the file system of its memory */
  adopt(id: ProcessId, dir: string, memory: string): Promise<Vm>;
}

export type EngineOptions = {
  accelerator: AcceleratorChoice;
  confinement: ConfinementState;
  warden: WardenSource;
  /** throws if such a VM must not be started */
  check?: ((isolation: Isolation) => void) | undefined;
};

/** Files and a folder for the trial of a confined VMM */
export type ConfinedTrial = {
  dir: string;
  memory: string;
  deviceState: string;
  memoryBytes: number;
  filter: CallFilter["filter"];
  warden: string;
  signal?: AbortSignal | undefined;
};

/** An engine that is installed on this host */
export interface InstalledEngine {
  readonly name: string;
  /** for display */
  readonly title: string;
  readonly version: string;
  readonly description: string;
  /** everything that the result of a trial depends on: results are cached by it */
  readonly fingerprint: unknown;
  /** system call filter of a confined VMM */
  readonly calls: CallFilter;
  readonly newMachine: Engine["newMachine"];
  /** the default processor of a machine with KVM */
  bestCpu(signal?: AbortSignal): Promise<CpuChoice>;
  /** starts a confined VMM without a machine; throws ForkdError if it does not answer */
  tryConfined(trial: ConfinedTrial): Promise<void>;
  start(opts: EngineOptions): Engine;
}

/** Doctor's report about an engine */
export type EngineLook = {
  name: string;
  /** for display */
  title: string;
  /** installed, and its version is known */
  isFound: boolean;
  /** version and path, or the problem */
  reason: string;
  isUsable: boolean;
  /** names of the Debian packages */
  packages: string;
  diskTool: { name: string; path: string | null; packages: string };
};

export interface EngineDriver {
  /** throws HOST_TOOL_MISSING */
  find(signal?: AbortSignal): Promise<InstalledEngine>;
  look(signal?: AbortSignal): Promise<EngineLook>;
  /** whether a process with these arguments is a VMM that works in this folder or below it */
  isVmmOf(argv: readonly string[], dir: string): boolean;
}
