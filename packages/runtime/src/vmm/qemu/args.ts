// QEMU's command line, as data.

import type { Platform } from "../../host/platform.ts";
import type { BootSpec, MachineShape, RestoreSpec, VmDisk, VmFiles } from "../driver.ts";
import { PLATFORM } from "../../host/platform.ts";
import { diskNodes } from "./block-node.ts";
import { consoleLog } from "./own-dir.ts";
import { compareVersions } from "./version.ts";

/** File descriptors that the VMM inherits */
export const FD = { qmp: 3, agent: 4, state: 5, savedState: 6, disk: 7, layer: 8 } as const;

/**
 * Path to which a clonable VMM writes its device state: a descriptor, because a folder would be shared with its clones
 */
export const SAVED_STATE = "/dev/fdset/1";
/** Path of a clonable VMM's active layer, as it starts */
const ACTIVE_LAYER = "/dev/fdset/2";
/** Path at which a clonable VMM opens further layers: the warden replaces the descriptor before each */
export const NEXT_LAYER = "/dev/fdset/3";

/** Available in every QEMU from 7.2 on, so that snapshots are portable */
export const { type: MACHINE, cpu: BASELINE_CPU } = PLATFORM.machine;

/**
 * A smaller machine type for KVM. Defined so that snapshots can require it, but not used: it was not measured with a
 * working KVM. It is not versioned, so its snapshots need the same version of QEMU.
 */
export const MICROVM = "microvm";

/** Id of the disk's device. Its bus slot is fixed, so that the machine is otherwise equal with and without a disk */
export const DISK_DEVICE = "disk";
const DISK_ADDRESS = "0x10";

/**
 * Largest translation cache in MiB; a VMM takes memory only for what it fills. A full cache is emptied, and everything is
 * translated again. A child's is a quarter of its memory within these bounds, which have room for a guest kernel with an
 * interpreter, and with a browser. A parent has the most, for its boot and the imports of its warm-up: few run at a time
 */
const TB_SIZE_MIB = { least: 64, most: 256 } as const;

/**
 * Alignment of guest memory: the host kernel maps huge pages only at aligned addresses, and QEMU does not align
 * them by itself
 */
const HUGE_PAGE = "2M";

/** Size of a child's console buffer in QEMU; a power of two */
export const CONSOLE_BYTES = 64 * 1024;

/** From this version on, QEMU opens a privately mapped file read-only */
const OPENS_READ_ONLY = "8.2";

export const SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
/**
 * QEMU's filter without `spawn=deny`: a clone or a frozen copy is made inside the VMM. The warden's filter denies spawning
 * to QEMU and allows only the warden's own call
 */
const COPIED_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,resourcecontrol=deny";

/** Arguments for a parent: its memory is a shared mapping of the file */
export function bootArgs(spec: BootSpec, platform: Platform = PLATFORM): string[] {
  return [
    ...commonArgs(spec.shape, platform, { cacheMiB: TB_SIZE_MIB.most }),
    ...memoryArgs(spec, "on"),
    ...deviceArgs(spec, { console: `file,id=console,path=${optionValue(consoleLog(spec.dir))}`, agentWait: "off" }, platform),
    "-kernel",
    spec.guestKernel,
    "-initrd",
    spec.initrd,
    "-append",
    spec.commandLine,
  ];
}

/** Arguments for a child: its memory is a private mapping of the file, and the device state arrives on a descriptor */
export function restoreArgs(spec: RestoreSpec, qemuVersion: string, platform: Platform = PLATFORM): string[] {
  return [
    ...commonArgs(spec.shape, platform, {
      ...spec,
      cacheMiB: Math.min(Math.max(Math.ceil(spec.shape.memoryMiB / 4), TB_SIZE_MIB.least), TB_SIZE_MIB.most),
    }),
    ...(spec.clonable ? descriptorArgs(spec) : []),
    ...memoryArgs(spec, privateShare(qemuVersion)),
    ...deviceArgs(
      spec.clonable ? byDescriptor(spec) : spec,
      {
        // A ring buffer in QEMU: a guest could fill the host's disk with a console file.
        console: `ringbuf,id=console,size=${CONSOLE_BYTES}`,
        // QEMU waits for the daemon's connection before it loads the state. A state can contain output that the port had
        // not sent yet; QEMU sends it while it loads, and without a connection the port would be blocked for good.
        agentWait: "on",
      },
      platform,
    ),
    // A guest that ends stops its VMM, which waits to be asked for the console: the buffer is lost with the process.
    "-action",
    "shutdown=pause",
    ...(spec.start === "hold" ? ["-S"] : []),
    "-incoming",
    `fd:${FD.state}`,
  ];
}

/** The files that a clonable VMM writes: its clones have others at the same descriptors */
function descriptorArgs({ disk }: VmFiles): string[] {
  const sets = [FD.savedState, ...(disk === null ? [] : [FD.disk, FD.layer])];
  return [
    ...sets.flatMap((fd, at) => ["-add-fd", `fd=${fd},set=${at + 1}`]),
    // A second monitor, which is always connected: QEMU closes unused sets when the last monitor is disconnected, as it
    // is when the daemon restarts.
    "-chardev",
    "ringbuf,id=sets,size=4096",
    "-mon",
    "chardev=sets,mode=control",
  ];
}

function byDescriptor<S extends VmFiles>(spec: S): S {
  return spec.disk === null ? spec : { ...spec, disk: { ...spec.disk, active: { ...spec.disk.active, path: ACTIVE_LAYER } } };
}

/** Whether this QEMU opens a privately mapped memory file read-only */
export function opensReadOnly(qemuVersion: string): boolean {
  return compareVersions(qemuVersion, OPENS_READ_ONLY) >= 0;
}

/** Options for a private mapping of a file */
export function privateShare(qemuVersion: string): string {
  return opensReadOnly(qemuVersion) ? "off,readonly=on,rom=off" : "off";
}

/** Value of `-machine` */
function machineArg(shape: MachineShape, { machine }: Platform): string {
  // mem-merge=off: pages that KSM shares between sandboxes would reveal the content of one to the other. Without
  // suppress-vmdesc=on and migration.send-configuration=off the device state cannot be loaded again.
  const common = "suppress-vmdesc=on,memory-backend=ram0,mem-merge=off";
  if (shape.machine === MICROVM) return `${MICROVM},${common},acpi=off,pit=on,pic=on,rtc=on,isa-serial=off,x-option-roms=off`;
  const { all, few, [shape.accelerator]: clock } = machine.options;
  return [shape.machine, common, ...clock, ...all, ...(shape.devices === "few" ? few : [])].join(",");
}

type Use = Partial<Pick<RestoreSpec, "clonable" | "freezable">> & { cacheMiB: number };

function commonArgs(shape: MachineShape, platform: Platform, { clonable, freezable, cacheMiB }: Use): string[] {
  return [
    "-nodefaults",
    "-no-user-config",
    "-display",
    "none",
    "-machine",
    machineArg(shape, platform),
    "-global",
    "migration.send-configuration=off",
    "-accel",
    shape.accelerator === "tcg" ? `tcg,tb-size=${cacheMiB}` : "kvm",
    "-cpu",
    cpuArg(shape, platform),
    "-smp",
    String(shape.vcpus),
    "-m",
    `${shape.memoryMiB}M`,
    // QEMU builds for microvm lack this option; the warden's system call filter is in force anyway
    ...(shape.machine === MICROVM ? [] : ["-sandbox", clonable || freezable ? COPIED_SANDBOX : SANDBOX]),
    "-no-reboot",
  ];
}

/**
 * With KVM the recorded features are enforced: otherwise QEMU starts a guest whose features are missing. Nested
 * virtualisation is off, because it exposes much code of the host's kernel to the guest.
 */
function cpuArg({ cpu, features }: MachineShape, { machine }: Platform): string {
  if (features === undefined) return cpu;
  return [cpu, ...(cpu === "host" ? ["migratable=on"] : []), ...machine.withoutNesting, "enforce=on"].join(",");
}

function memoryArgs(spec: { memory: string; shape: MachineShape }, share: string): string[] {
  return [
    "-object",
    `memory-backend-file,id=ram0,size=${spec.shape.memoryMiB}M,align=${HUGE_PAGE},mem-path=${optionValue(spec.memory)},share=${share}`,
  ];
}

/** Bus of virtio devices: a microvm has no PCI */
type Bus = "pci" | "device";

type Channels = { console: string; agentWait: "on" | "off" };

function deviceArgs(spec: VmFiles & { shape: MachineShape }, { console, agentWait }: Channels, { machine }: Platform): string[] {
  const bus: Bus = spec.shape.machine === MICROVM ? "device" : "pci";
  return [
    // identifies an orphaned VMM as ours
    "-name",
    `guest=${optionValue(spec.dir)}`,
    "-chardev",
    `socket,id=qmp,fd=${FD.qmp},server=on,wait=off`,
    "-mon",
    "chardev=qmp,mode=control",
    "-chardev",
    console,
    ...machine.serial,
    "-device",
    `virtio-serial-${bus},max_ports=2`,
    "-chardev",
    `socket,id=agent,fd=${FD.agent},server=on,wait=${agentWait}`,
    "-device",
    "virtserialport,chardev=agent,name=forkd.agent.0",
    ...(spec.rootfs === null ? [] : rootArgs(spec.rootfs, bus)),
    ...(spec.disk === null ? [] : diskArgs(spec.disk, bus)),
    // Announces the fork to the guest kernel through ACPI, whose interpreter takes 13 ms under TCG. The agent reseeds
    // the kernel anyway, so only KVM guests have the device.
    ...(spec.shape.accelerator === "kvm" && spec.shape.machine !== MICROVM ? machine.generation : []),
  ];
}

function rootArgs(rootfs: string, bus: Bus): string[] {
  const blockdev = `driver=raw,node-name=root,read-only=on,file.driver=file,file.filename=${optionValue(rootfs)},file.locking=off`;
  return ["-blockdev", blockdev, "-device", `virtio-blk-${bus},drive=root`];
}

function diskArgs({ below, active }: VmDisk, bus: Bus): string[] {
  return [
    ...diskNodes(below, active).flatMap((node) => ["-blockdev", JSON.stringify(node)]),
    // reports host errors, such as a full disk, to the guest instead of stopping the VM
    "-device",
    `virtio-blk-${bus},id=${DISK_DEVICE},${bus === "pci" ? `addr=${DISK_ADDRESS},` : ""}drive=${active.id},werror=report,rerror=report`,
  ];
}

/** A comma separates QEMU's options; a doubled comma is a literal one */
export function optionValue(value: string): string {
  return value.replaceAll(",", ",,");
}
