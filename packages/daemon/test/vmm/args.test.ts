// QEMU's command line and who may load which snapshot, as data.

import assert from "node:assert/strict";
import { test } from "node:test";
import { bootArgs, restoreArgs } from "../../src/vmm/qemu/args.ts";
import { layerNode, stackNode } from "../../src/vmm/qemu/block-node.ts";
import { checkCompatible } from "../../src/vmm/qemu/compatible.ts";

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

type Node = {
  "node-name": string;
  driver: string;
  "read-only": boolean;
  file: { filename: string; locking: string };
  backing?: Node;
};

function valueOf(args: string[], option: string, starting: string): string | undefined {
  return args.find((arg, i) => args[i - 1] === option && arg.startsWith(starting));
}

test("a parent writes to its memory file, a child has a private view of it", () => {
  assert.match(valueOf(boot, "-object", "memory-backend-file") ?? "", /mem-path=\/store\/m\.ram,share=on$/);
  assert.match(valueOf(restore, "-object", "memory-backend-file") ?? "", /mem-path=\/store\/m\.ram,share=off$/);
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

test("a comma in a path does not end the option", () => {
  assert.match(valueOf(boot, "-blockdev", "driver=raw") ?? "", /filename=\/store\/a,,b\.squashfs,/);
});

test("parent and child are the same machine", () => {
  for (const option of ["-machine", "-cpu", "-accel", "-smp", "-m", "-global"])
    assert.equal(valueOf(boot, option, ""), valueOf(restore, option, ""));
  const devices = (args: string[]): string[] => args.filter((_, i) => args[i - 1] === "-device");
  assert.deepEqual(devices(boot), devices(restore));
});

const below = [
  { id: "dk-a", format: "raw", path: "/store/a,b.raw" },
  { id: "dk-b", format: "qcow2", path: "/store/b.qcow2" },
] as const;
const active = { id: "dk-c", format: "qcow2", path: "/vms/c.qcow2" } as const;

test("of a disk's layers only the uppermost one is written, and no file says what lies below it", () => {
  const args = restoreArgs({ ...files, disk: { sizeMiB: 64, below, active }, deviceState: "/store/d", start: "run" }, "7.2.22");
  const top = JSON.parse(valueOf(args, "-blockdev", "{") ?? "{}") as Node;
  const nodes = [top, top.backing, top.backing?.backing];
  assert.deepEqual(
    nodes.map((node) => [node?.["node-name"], node?.driver, node?.["read-only"], node?.file.filename]),
    [
      ["dk-c", "qcow2", false, "/vms/c.qcow2"],
      ["dk-b", "qcow2", true, "/store/b.qcow2"],
      ["dk-a", "raw", true, "/store/a,b.raw"],
    ],
  );
  assert.ok(!("backing" in (nodes[2] ?? {})), "a raw layer has nothing below it");
  for (const node of nodes) assert.equal(node?.file.locking, "off");
});

test("a host that cannot write is the guest's error, and stops no VM", () => {
  const args = bootArgs({
    ...files,
    disk: { sizeMiB: 64, below: [], active: below[0] },
    guestKernel: "/k",
    initrd: "/i",
    commandLine: "quiet",
  });
  assert.match(valueOf(args, "-device", "virtio-blk-pci,id=disk") ?? "", /drive=dk-a,werror=report,rerror=report$/);
});

test("with a disk a machine has one device more, and is else the same", () => {
  const devices = (args: string[]): string[] => args.filter((_, i) => args[i - 1] === "-device");
  const withDisk = devices(
    restoreArgs({ ...files, disk: { sizeMiB: 64, below, active }, deviceState: "/store/d", start: "hold" }, "7.2.22"),
  );
  const others = withDisk.filter((device) => !device.includes("id=disk"));
  assert.deepEqual(others, devices(restore));
  assert.equal(withDisk.length, others.length + 1);
});

test("an empty layer is opened with nothing below it; what it is put onto is named", () => {
  assert.equal(layerNode(active, "write", null)["backing"], null);
  assert.equal(layerNode(active, "write", "dk-b")["backing"], "dk-b");
  assert.throws(() => stackNode([], "read"));
});

test("a booting guest's console is written where the VMM may write", () => {
  assert.equal(valueOf(boot, "-chardev", "file,id=console"), "file,id=console,path=/run/x/vmm/console.log");
  assert.match(valueOf(restore, "-chardev", "ringbuf,id=console") ?? "", /size=65536$/);
});

test("only a held child waits for its start", () => {
  assert.ok(restore.includes("-S"));
  assert.ok(!restoreArgs({ ...files, deviceState: "/store/d", start: "run" }, "7.2.22").includes("-S"));
});

test("a snapshot is refused by an older QEMU and where KVM is missing", () => {
  const host = { qemuVersion: "7.2.4", accelerator: "tcg" } as const;
  checkCompatible("t", shape, host);
  checkCompatible("t", { ...shape, engineVersion: "7.2.30" }, host);
  assert.throws(() => checkCompatible("t", { ...shape, engineVersion: "8.0.0" }, host), {
    code: "SNAPSHOT_INCOMPATIBLE",
    message: /older 7\.2\.4/,
  });
  assert.throws(() => checkCompatible("t", { ...shape, accelerator: "kvm" }, host), { code: "SNAPSHOT_INCOMPATIBLE", message: /KVM/ });
  checkCompatible("t", shape, { ...host, accelerator: "kvm" });
});
