// QEMU's command line, as data.

import type { BootSpec, MachineShape, RestoreSpec, VmDisk, VmFiles } from "../driver.ts";
import { stackNode } from "./block-node.ts";
import { consoleLog } from "./own-dir.ts";
import { compareVersions } from "./version.ts";

/** File descriptors that the VMM inherits */
export const FD = { qmp: 3, agent: 4, state: 5 } as const;

/** Machine type and CPU model that every QEMU from 7.2 on has, so that snapshots travel */
export const MACHINE = "pc-q35-7.2";
export const BASELINE_CPU = "Nehalem-v1";

/** Id of the disk's device; its place on the bus is its own, so that a machine is otherwise the same with and without it */
export const DISK_DEVICE = "disk";
const DISK_ADDRESS = "0x10";

/** Translated code kept per VM, in `MiB`: what one guest kernel and one interpreter need, with room */
const TB_SIZE_MIB = 32;

/** How much of a child's console QEMU keeps; a power of two */
export const CONSOLE_BYTES = 64 * 1024;

/** From here on a private mapping of a file does not need the right to write the file */
const OPENS_READ_ONLY = "8.2";

export const SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/** Arguments for a parent: memory is the file itself */
export function bootArgs(spec: BootSpec): string[] {
  return [
    ...commonArgs(spec.shape),
    ...memoryArgs(spec, "on"),
    ...deviceArgs(spec, `file,id=console,path=${optionValue(consoleLog(spec.dir))}`),
    "-kernel",
    spec.guestKernel,
    "-initrd",
    spec.initrd,
    "-append",
    spec.commandLine,
  ];
}

/** Arguments for a child: memory is a private view of the file, device state comes by descriptor */
export function restoreArgs(spec: RestoreSpec, qemuVersion: string): string[] {
  return [
    ...commonArgs(spec.shape),
    ...memoryArgs(spec, privateShare(qemuVersion)),
    // a guest could fill the host's disk with it, so QEMU keeps only the end of it
    ...deviceArgs(spec, `ringbuf,id=console,size=${CONSOLE_BYTES}`),
    ...(spec.start === "hold" ? ["-S"] : []),
    "-incoming",
    `fd:${FD.state}`,
  ];
}

/** Whether this QEMU opens a memory file that it maps privately for reading only */
export function opensReadOnly(qemuVersion: string): boolean {
  return compareVersions(qemuVersion, OPENS_READ_ONLY) >= 0;
}

/** A private view of a file */
export function privateShare(qemuVersion: string): string {
  return opensReadOnly(qemuVersion) ? "off,readonly=on,rom=off" : "off";
}

function commonArgs(shape: MachineShape): string[] {
  return [
    "-nodefaults",
    "-no-user-config",
    "-display",
    "none",
    // without suppress-vmdesc and send-configuration the device state cannot be loaded again
    "-machine",
    `${shape.machine},suppress-vmdesc=on,memory-backend=ram0,hpet=off,smm=off,vmport=off,graphics=off`,
    "-global",
    "migration.send-configuration=off",
    "-accel",
    shape.accelerator === "tcg" ? `tcg,tb-size=${TB_SIZE_MIB}` : "kvm",
    "-cpu",
    shape.cpu,
    "-smp",
    String(shape.vcpus),
    "-m",
    `${shape.memoryMiB}M`,
    "-sandbox",
    SANDBOX,
    "-no-reboot",
  ];
}

function memoryArgs(spec: { memory: string; shape: MachineShape }, share: string): string[] {
  return ["-object", `memory-backend-file,id=ram0,size=${spec.shape.memoryMiB}M,mem-path=${optionValue(spec.memory)},share=${share}`];
}

function deviceArgs(spec: VmFiles & { shape: MachineShape }, console: string): string[] {
  return [
    // by this an orphan is known as ours
    "-name",
    `guest=${optionValue(spec.dir)}`,
    "-chardev",
    `socket,id=qmp,fd=${FD.qmp},server=on,wait=off`,
    "-mon",
    "chardev=qmp,mode=control",
    "-chardev",
    console,
    "-device",
    "isa-serial,chardev=console",
    "-device",
    "virtio-serial-pci,max_ports=2",
    "-chardev",
    `socket,id=agent,fd=${FD.agent},server=on,wait=off`,
    "-device",
    "virtserialport,chardev=agent,name=forkd.agent.0",
    ...(spec.rootfs === null ? [] : rootArgs(spec.rootfs)),
    ...(spec.disk === null ? [] : diskArgs(spec.disk)),
    // tells the guest kernel of the fork through ACPI, whose interpreter costs a translated guest 13 ms; the agent reseeds it in any case
    ...(spec.shape.accelerator === "kvm" ? ["-device", "vmgenid,guid=auto"] : []),
  ];
}

function rootArgs(rootfs: string): string[] {
  const blockdev = `driver=raw,node-name=root,read-only=on,file.driver=file,file.filename=${optionValue(rootfs)},file.locking=off`;
  return ["-blockdev", blockdev, "-device", "virtio-blk-pci,drive=root"];
}

function diskArgs({ below, active }: VmDisk): string[] {
  return [
    "-blockdev",
    JSON.stringify(stackNode([...below, active], "write")),
    // an error of the host, such as a full disk, is the guest's own, and does not stop the VM
    "-device",
    `virtio-blk-pci,id=${DISK_DEVICE},addr=${DISK_ADDRESS},drive=${active.id},werror=report,rerror=report`,
  ];
}

/** A comma separates QEMU's options; doubled it stands for itself */
export function optionValue(value: string): string {
  return value.replaceAll(",", ",,");
}
