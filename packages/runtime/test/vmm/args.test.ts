// QEMU's command line and the compatibility of snapshots, as data.

import assert from "node:assert/strict";
import { test } from "node:test";
import { guestCommandLine } from "../../src/vmm/qemu/command-line.ts";
import { bootArgs, restoreArgs } from "../../src/vmm/qemu/args.ts";
import { layerNode, stackNode } from "../../src/vmm/qemu/block-node.ts";
import { checkCompatible } from "../../src/vmm/compatible.ts";
import { refusalOf, type CompatibleHost } from "../../src/vmm/qemu/compatible.ts";

import type { MachineShape } from "../../src/vmm/driver.ts";

const shape: MachineShape = {
  engine: "qemu",
  engineVersion: "7.2.22",
  machine: "pc-q35-7.2",
  cpu: "Nehalem-v1",
  accelerator: "tcg",
  vcpus: 1,
  memoryMiB: 256,
};
const files = { shape, dir: "/run/x", rootfs: "/store/a,b.squashfs", memory: "/store/m.ram", disk: null };
const boot = bootArgs({ ...files, guestKernel: "/k", initrd: "/i", commandLine: "quiet" });
const restore = restoreArgs({ ...files, deviceState: "/store/d", start: "hold" }, "7.2.22");

const host: CompatibleHost = { qemuVersion: "7.2.4", accelerator: "tcg", reason: "no /dev/kvm", cpu: null };

const below = [
  { id: "dk-a", format: "raw", path: "/store/a,b.raw" },
  { id: "dk-b", format: "qcow2", path: "/store/b.qcow2" },
] as const;
const active = { id: "dk-c", format: "qcow2", path: "/vms/c.qcow2" } as const;

type FileNode = { "node-name": string; filename: string; locking: string };
type Node = {
  "node-name": string;
  driver: string;
  "read-only": boolean;
  /** a node, or the name of one */
  file: FileNode | string;
  backing?: Node;
};

/** The file's node of the active layer, and the node of the disk */
function diskNodesIn(args: string[]): [FileNode, Node] {
  const nodes = args.filter((value, at) => args[at - 1] === "-blockdev" && value.startsWith("{"));
  return nodes.map((json) => JSON.parse(json) as unknown) as [FileNode, Node];
}

function valueOf(args: string[], option: string, starting: string): string | undefined {
  return args.find((arg, i) => args[i - 1] === option && arg.startsWith(starting));
}

test("a parent writes to its memory file, a child maps it privately", () => {
  assert.match(valueOf(boot, "-object", "memory-backend-file") ?? "", /mem-path=\/store\/m\.ram,share=on$/);
  assert.match(valueOf(restore, "-object", "memory-backend-file") ?? "", /mem-path=\/store\/m\.ram,share=off$/);
});

test("the translation cache of a parent has room for a boot, that of a child depends on its memory", () => {
  const child = (memoryMiB: number, clonable?: "sandbox" | "zygote"): string[] =>
    restoreArgs({ ...files, shape: { ...shape, memoryMiB }, deviceState: "/store/d", start: "hold", clonable }, "7.2.22");
  const cacheOf = (args: string[]): string | undefined => valueOf(args, "-accel", "tcg");
  const caches = [boot, child(64), child(512), child(4096)].map(cacheOf);
  assert.deepEqual(caches, ["tcg,tb-size=256", "tcg,tb-size=64", "tcg,tb-size=128", "tcg,tb-size=256"]);
  for (const clonable of ["sandbox", "zygote"] as const) assert.equal(cacheOf(child(512, clonable)), "tcg,tb-size=128", clonable);
});

test("QEMU's filter allows a VMM that is copied to start a process, and the state of a cloneable one is saved through a descriptor", () => {
  const clonable = restoreArgs({ ...files, deviceState: "/store/d", start: "run", clonable: "sandbox" }, "7.2.22");
  assert.equal(valueOf(clonable, "-sandbox", "on"), "on,obsolete=deny,elevateprivileges=deny,resourcecontrol=deny");
  assert.equal(valueOf(clonable, "-add-fd", "fd"), "fd=6,set=1");
  assert.match(valueOf(restore, "-sandbox", "on") ?? "", /spawn=deny/);
  assert.ok(!restore.includes("-add-fd"));
  const freezable = restoreArgs({ ...files, deviceState: "/store/d", start: "hold", freezable: true }, "7.2.22");
  assert.deepEqual(
    freezable,
    restore.map((arg) => arg.replace("spawn=deny,", "")),
    "a frozen copy takes only that",
  );
});

test("a VMM that can be cloned has its layers by descriptors, at which its clones have theirs", () => {
  const disk = { sizeMiB: 64, below, active };
  const args = restoreArgs({ ...files, disk, deviceState: "/store/d", start: "run", clonable: "zygote" }, "7.2.22");
  const sets = args.filter((_, i) => args[i - 1] === "-add-fd");
  assert.deepEqual(sets, ["fd=6,set=1", "fd=7,set=2", "fd=8,set=3"]);
  const [file, { backing }] = diskNodesIn(args);
  assert.deepEqual([file.filename, (backing?.file as FileNode | undefined)?.filename], ["/dev/fdset/2", "/store/b.qcow2"]);
});

test("from QEMU 8.2 on a child opens the memory file read-only", () => {
  for (const version of ["8.2.0", "10.0.2"]) {
    const args = restoreArgs({ ...files, deviceState: "/store/d", start: "run" }, version);
    assert.match(valueOf(args, "-object", "memory-backend-file") ?? "", /share=off,readonly=on,rom=off$/);
  }
  const older = restoreArgs({ ...files, deviceState: "/store/d", start: "run" }, "8.1.5");
  assert.doesNotMatch(valueOf(older, "-object", "memory-backend-file") ?? "", /readonly/);
});

test("every VM has the seccomp filter, no default devices, a read-only root and no network", () => {
  for (const args of [boot, restore]) {
    assert.equal(valueOf(args, "-sandbox", "on"), "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    assert.ok(args.includes("-nodefaults") && args.includes("-no-user-config"));
    assert.match(valueOf(args, "-blockdev", "driver=raw") ?? "", /read-only=on/);
    assert.ok(!args.some((arg) => /^(-net|-nic|-netdev|virtio-net)/.test(arg)));
  }
});

test("no guest uses a clock source that it has to calibrate", () => {
  for (const args of [boot, restore]) assert.match(valueOf(args, "-machine", "pc-q35") ?? "", /,hpet=on,/);
  const kvm = bootArgs({ ...files, shape: { ...shape, accelerator: "kvm" }, guestKernel: "/k", initrd: "/i", commandLine: "" });
  assert.match(valueOf(kvm, "-machine", "pc-q35") ?? "", /,hpet=off,/);
  assert.match(guestCommandLine("tcg"), / tsc=unstable clocksource=hpet /);
  assert.match(guestCommandLine("kvm"), / clocksource=kvm-clock$/);
  for (const accelerator of ["tcg", "kvm"] as const) {
    assert.doesNotMatch(guestCommandLine(accelerator), /tsc=reliable/);
    assert.match(guestCommandLine(accelerator), / sysctl\.vm\.compaction_proactiveness=0 sysctl\.vm\.stat_interval=60 /);
  }
});

test("the host's kernel does not merge memory of sandboxes, and memory is aligned for huge pages", () => {
  for (const args of [boot, restore]) {
    assert.match(valueOf(args, "-machine", "pc-q35") ?? "", /,mem-merge=off,/);
    assert.match(valueOf(args, "-object", "memory-backend-file") ?? "", /,align=2M,/);
  }
});

test("a new machine has few devices, an older one the devices that it was made with", () => {
  const machineOf = (over: Partial<MachineShape>): string =>
    valueOf(restoreArgs({ ...files, shape: { ...shape, ...over }, deviceState: "/store/d", start: "run" }, "7.2.22"), "-machine", "") ?? "";
  assert.match(machineOf({ devices: "few" }), /,sata=off,smbus=off,i8042=off$/);
  assert.doesNotMatch(machineOf({}), /sata|smbus|i8042/);
});

// Not run: no machine of the project has a working KVM.
test("a microvm has its devices outside PCI, and no firmware tables", () => {
  const micro = { ...files, shape: { ...shape, machine: "microvm", accelerator: "kvm" as const }, disk: { sizeMiB: 64, below, active } };
  const args = bootArgs({ ...micro, guestKernel: "/k", initrd: "/i", commandLine: "quiet" });
  assert.equal(
    valueOf(args, "-machine", ""),
    "microvm,suppress-vmdesc=on,memory-backend=ram0,mem-merge=off,acpi=off,pit=on,pic=on,rtc=on,isa-serial=off,x-option-roms=off",
  );
  const devices = args.filter((_, i) => args[i - 1] === "-device");
  assert.ok(devices.includes("virtio-serial-device,max_ports=2") && devices.includes("virtio-blk-device,drive=root"));
  assert.ok(devices.includes("virtio-blk-device,id=disk,drive=dk-c,werror=report,rerror=report"));
  assert.ok(!args.some((arg) => /pci|vmgenid|hpet|^-sandbox$/.test(arg)));
  const restored = restoreArgs({ ...micro, deviceState: "/store/d", start: "run" }, "7.2.22");
  assert.deepEqual(
    restored.filter((_, i) => restored[i - 1] === "-device"),
    devices,
  );
});

test("a microvm needs the QEMU version that made it", () => {
  const micro: MachineShape = { ...shape, machine: "microvm", engineVersion: "7.2.4" };
  checkHere(micro, host);
  assert.throws(() => checkHere(micro, { ...host, qemuVersion: "8.2.0" }), {
    code: "SNAPSHOT_INCOMPATIBLE",
    message: /microvm/,
  });
});

test("with KVM the recorded CPU model is enforced, without virtualisation for the guest", () => {
  const cpuOf = (over: Partial<MachineShape>): string | undefined =>
    valueOf(restoreArgs({ ...files, shape: { ...shape, ...over }, deviceState: "/store/d", start: "run" }, "7.2.22"), "-cpu", "");
  const kvm = { accelerator: "kvm" as const, vendor: "GenuineIntel", features: ["avx2"] } satisfies Partial<MachineShape>;
  assert.equal(cpuOf({ ...kvm, cpu: "Haswell-v4" }), "Haswell-v4,vmx=off,svm=off,enforce=on");
  assert.equal(cpuOf({ ...kvm, cpu: "host" }), "host,migratable=on,vmx=off,svm=off,enforce=on");
  // an older snapshot without recorded features keeps its CPU argument
  assert.equal(cpuOf({ accelerator: "kvm" }), "Nehalem-v1");
  assert.equal(cpuOf({}), "Nehalem-v1");
});

test("a comma in a path is escaped", () => {
  assert.match(valueOf(boot, "-blockdev", "driver=raw") ?? "", /filename=\/store\/a,,b\.squashfs,/);
});

test("parent and child are the same machine", () => {
  for (const option of ["-machine", "-cpu", "-smp", "-m", "-global"]) assert.equal(valueOf(boot, option, ""), valueOf(restore, option, ""));
  const accelerator = (args: string[]): string | undefined => valueOf(args, "-accel", "")?.split(",")[0];
  assert.equal(accelerator(boot), accelerator(restore));
  const devices = (args: string[]): string[] => args.filter((_, i) => args[i - 1] === "-device");
  assert.deepEqual(devices(boot), devices(restore));
});

test("only the top layer of a disk is written, and no file names the layers below it", () => {
  const args = restoreArgs({ ...files, disk: { sizeMiB: 64, below, active }, deviceState: "/store/d", start: "run" }, "7.2.22");
  const [file, top] = diskNodesIn(args);
  assert.equal(top.file, file["node-name"], "the file of a layer that is written is a separate node");
  const nodes = [top, top.backing, top.backing?.backing];
  const opened = [file, ...nodes.slice(1).map((node) => node?.file as FileNode | undefined)];
  assert.deepEqual(
    nodes.map((node, at) => [node?.["node-name"], node?.driver, node?.["read-only"], opened[at]?.filename]),
    [
      ["dk-c", "qcow2", false, "/vms/c.qcow2"],
      ["dk-b", "qcow2", true, "/store/b.qcow2"],
      ["dk-a", "raw", true, "/store/a,b.raw"],
    ],
  );
  assert.ok(!("backing" in (nodes[2] ?? {})), "a raw layer has nothing below it");
  for (const node of opened) assert.equal(node?.locking, "off");
});

test("a write error of the host is an I/O error of the guest, and stops no VM", () => {
  const args = bootArgs({
    ...files,
    disk: { sizeMiB: 64, below: [], active: below[0] },
    guestKernel: "/k",
    initrd: "/i",
    commandLine: "quiet",
  });
  assert.match(valueOf(args, "-device", "virtio-blk-pci,id=disk") ?? "", /drive=dk-a,werror=report,rerror=report$/);
});

test("a disk adds one device and no other difference", () => {
  const devices = (args: string[]): string[] => args.filter((_, i) => args[i - 1] === "-device");
  const withDisk = devices(
    restoreArgs({ ...files, disk: { sizeMiB: 64, below, active }, deviceState: "/store/d", start: "hold" }, "7.2.22"),
  );
  const others = withDisk.filter((device) => !device.includes("id=disk"));
  assert.deepEqual(others, devices(restore));
  assert.equal(withDisk.length, others.length + 1);
});

test("an empty layer is opened with nothing below it; its backing layer is named later", () => {
  assert.equal(layerNode(active, "write", null)["backing"], null);
  assert.equal(layerNode(active, "write", "dk-b")["backing"], "dk-b");
  assert.throws(() => stackNode([]));
});

test("a booting guest's console is written in the VMM's own folder", () => {
  assert.equal(valueOf(boot, "-chardev", "file,id=console"), "file,id=console,path=/run/x/vmm/console.log");
  assert.match(valueOf(restore, "-chardev", "ringbuf,id=console") ?? "", /size=65536$/);
});

test("only a held child waits for its start", () => {
  assert.ok(restore.includes("-S"));
  assert.ok(!restoreArgs({ ...files, deviceState: "/store/d", start: "run" }, "7.2.22").includes("-S"));
  // the console of a guest that ended is read from its VMM
  assert.equal(valueOf(restore, "-action", ""), "shutdown=pause");
});

test("a snapshot is refused by an older QEMU and where KVM is missing", () => {
  checkHere(shape, host);
  checkHere({ ...shape, engineVersion: "7.2.30" }, host);
  assert.throws(() => checkHere({ ...shape, engineVersion: "8.0.0" }, host), {
    code: "SNAPSHOT_INCOMPATIBLE",
    message: /older 7\.2\.4/,
  });
  assert.throws(() => checkHere({ ...shape, accelerator: "kvm" }, host), { code: "SNAPSHOT_INCOMPATIBLE", message: /KVM/ });
  checkHere(shape, { ...host, accelerator: "kvm" });
});

function checkHere(shape: MachineShape, host: CompatibleHost): void {
  checkCompatible("t", shape, { name: "qemu", refusal: (one) => refusalOf(one, host) });
}
