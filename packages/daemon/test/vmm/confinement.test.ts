// What a VMM is shown of the host, as data.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { installation } from "../../src/host/installation.ts";
import { tailOf } from "../../src/util/tail.ts";
import { bootConfinement, confinedEnv, restoreConfinement } from "../../src/vmm/qemu/confinement.ts";
import { consoleLog, deviceStateFile, ownDir, takeDeviceState } from "../../src/vmm/qemu/own-dir.ts";

import type { MachineShape } from "../../src/vmm/driver.ts";

const MIB = 1024 * 1024;
const shape: MachineShape = {
  engine: "qemu",
  engineVersion: "7.2.22",
  machine: "pc-q35-7.2",
  cpu: "Nehalem-v1",
  accelerator: "tcg",
  vcpus: 1,
  memoryMiB: 1024,
};
const files = { shape, dir: "/run/sb-1", rootfs: "/store/root.squashfs", memory: "/store/m.ram", disk: null };
const boot = { ...files, guestKernel: "/store/vmlinux", initrd: "/store/initrd", commandLine: "quiet" };
const child = { ...files, deviceState: "/store/device.state" };
const old = { path: "/usr/bin/qemu-system-x86_64", version: "7.2.22", files: [] };
const recent = { ...old, version: "8.2.0" };

test("a parent writes its own folder and its memory, and reads what it boots from", () => {
  const shown = bootConfinement(boot, old);
  assert.deepEqual(shown.writable, ["/run/sb-1/vmm", "/store/m.ram"]);
  assert.deepEqual(shown.readable.toSorted(), ["/store/initrd", "/store/root.squashfs", "/store/vmlinux"]);
  assert.equal(shown.maxFileBytes, 1024 * MIB);
});

test("a child writes its own folder only", () => {
  const shown = restoreConfinement(child, recent);
  assert.deepEqual(shown.writable, ["/run/sb-1/vmm"]);
  assert.deepEqual(shown.readable.toSorted(), ["/store/device.state", "/store/m.ram", "/store/root.squashfs"]);
  assert.ok(shown.maxFileBytes < 1024 * MIB);
});

test("a disk's layers are read but for the folder of the uppermost one, which can grow to the disk's size", () => {
  const below = [
    { id: "dk-a", format: "raw", path: "/store/sn/a.raw" },
    { id: "dk-b", format: "qcow2", path: "/store/sn/b.qcow2" },
  ] as const;
  const disk = { sizeMiB: 2048, below, active: { id: "dk-c", format: "qcow2", path: "/vms/sb-1/vmm/c.qcow2" } as const };
  const shown = restoreConfinement({ ...child, disk }, recent);
  assert.deepEqual(shown.writable, ["/run/sb-1/vmm", "/vms/sb-1/vmm"]);
  for (const { path } of below) assert.ok(shown.readable.includes(path));
  assert.ok(shown.maxFileBytes > 2048 * MIB);
});

test("an older QEMU is made to open the memory for reading", () => {
  assert.ok(restoreConfinement(child, old).readable.includes(installation.readOnlyPreload));
  assert.deepEqual(confinedEnv("/store/m.ram", old), { LD_PRELOAD: installation.readOnlyPreload, FORKD_READ_ONLY: "/store/m.ram" });
  assert.deepEqual(confinedEnv("/store/m.ram", recent), {});
});

test("/dev/kvm is there for those who use it", () => {
  assert.deepEqual(restoreConfinement(child, old).devices, []);
  assert.deepEqual(restoreConfinement({ ...child, shape: { ...shape, accelerator: "kvm" } }, old).devices, ["/dev/kvm"]);
});

test("a QEMU that somebody built brings its files", () => {
  const own = {
    path: "/opt/qemu/bin/qemu-system-x86_64",
    version: "9.0.0",
    files: ["/opt/qemu/bin/qemu-system-x86_64", "/opt/qemu/share/qemu"],
  };
  for (const file of own.files) assert.ok(restoreConfinement(child, own).readable.includes(file));
});

test("a device state is taken as a copy, once", async () => {
  await using scratch = await folder();
  const to = join(scratch.dir, "taken");
  await writeFile(deviceStateFile(scratch.dir), "state");
  await takeDeviceState(scratch.dir, to);
  assert.equal(await readFile(to, "utf8"), "state");
  await assert.rejects(takeDeviceState(scratch.dir, join(scratch.dir, "again")), { code: "ENOENT" });
});

test("what a VMM puts in the place of its files leads nowhere", async () => {
  await using scratch = await folder();
  const secret = join(scratch.dir, "secret");
  await writeFile(secret, "secret");
  for (const file of [deviceStateFile(scratch.dir), consoleLog(scratch.dir)]) await symlink(secret, file);
  await assert.rejects(takeDeviceState(scratch.dir, join(scratch.dir, "taken")), { code: "ELOOP" });
  assert.equal(await tailOf(consoleLog(scratch.dir)), "");
  await rm(deviceStateFile(scratch.dir));
  await mkdir(deviceStateFile(scratch.dir));
  await assert.rejects(takeDeviceState(scratch.dir, join(scratch.dir, "taken")), { code: "VMM_FAILED" });
});

async function folder(): Promise<AsyncDisposable & { dir: string }> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-own-dir-"));
  await mkdir(ownDir(dir));
  return { dir, [Symbol.asyncDispose]: async () => rm(dir, { recursive: true }) };
}
