// The files that a confined VMM sees, as data.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ForkdError } from "../../src/errors.ts";
import { installation } from "../../src/host/installation.ts";
import { tailOf } from "../../src/util/tail.ts";
import { confinedBy } from "../../src/probe/confinement.ts";
import { bootConfinement, callFilter, confinedEnv, restoreConfinement } from "../../src/vmm/qemu/confinement.ts";
import { consoleLog, deviceStateFile, openStateFile, ownDir, takeDeviceState, takeOpenState } from "../../src/vmm/qemu/own-dir.ts";

import type { CallFilter, MachineShape } from "../../src/vmm/driver.ts";

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

test("a parent writes its own folder and its memory, and reads its boot files", () => {
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

test("a disk's layers are read-only except the folder of the top one, which can grow to the disk's size", () => {
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

test("an older QEMU opens the memory read-only through the preload library", () => {
  const at = "/forkd/read-only.so";
  assert.deepEqual(restoreConfinement(child, old).placed, [{ path: installation.readOnlyPreload, at }]);
  assert.deepEqual(confinedEnv("/store/m.ram", old), { LD_PRELOAD: at, FORKD_READ_ONLY: "/store/m.ram" });
  assert.deepEqual(restoreConfinement(child, recent).placed, []);
  assert.deepEqual(confinedEnv("/store/m.ram", recent), {});
});

test("only examined versions have a list of calls; for others the dangerous calls are refused", () => {
  for (const version of ["7.2", "7.2.0", "7.2.22"]) assert.equal(callFilter(version).filter, "listed");
  for (const version of ["7.20.1", "8.2.0", "17.2.1", "10.0"]) assert.equal(callFilter(version).filter, "deny");
});

test("a list that is too short disables the list of that VMM, not its namespaces", async () => {
  const short = async ({ filter }: CallFilter): Promise<void> => {
    if (filter !== "deny") throw new ForkdError("VMM_FAILED", "it made the system call x");
  };
  assert.deepEqual(await confinedBy(callFilter("7.2.22"), async () => undefined), {
    kind: "namespaces",
    reason: null,
    calls: { filter: "listed", reason: null },
  });
  assert.deepEqual(await confinedBy(callFilter("7.2.22"), short), {
    kind: "namespaces",
    reason: null,
    calls: { filter: "deny", reason: "it made the system call x" },
  });
  const never = async (): Promise<never> => {
    throw new ForkdError("VMM_FAILED", "no namespaces");
  };
  assert.deepEqual(await confinedBy(callFilter("7.2.22"), never), { kind: "none", reason: "no namespaces" });
});

test("/dev/kvm exists only for VMMs that use it", () => {
  assert.deepEqual(restoreConfinement(child, old).devices, []);
  assert.deepEqual(restoreConfinement({ ...child, shape: { ...shape, accelerator: "kvm" } }, old).devices, ["/dev/kvm"]);
});

test("a custom QEMU build gets its own files", () => {
  const own = {
    path: "/opt/qemu/bin/qemu-system-x86_64",
    version: "9.0.0",
    files: ["/opt/qemu/bin/qemu-system-x86_64", "/opt/qemu/share/qemu"],
  };
  for (const file of own.files) assert.ok(restoreConfinement(child, own).readable.includes(file));
});

test("a device state is taken once", async () => {
  await using scratch = await folder();
  const to = join(scratch.dir, "taken");
  await writeFile(deviceStateFile(scratch.dir), "state");
  await takeDeviceState(scratch.dir, to);
  assert.equal(await readFile(to, "utf8"), "state");
  await assert.rejects(takeDeviceState(scratch.dir, join(scratch.dir, "again")), { code: "ENOENT" });
});

test("links that a VMM puts in place of its files are not followed", async () => {
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

test("a cloneable VMM writes no file by its name: its clones see the same files", () => {
  const shown = restoreConfinement({ ...child, clonable: "zygote" }, old);
  assert.deepEqual(shown.writable, []);
  assert.ok(shown.readable.includes("/run/sb-1/vmm"));
});

test("the state of a clone is the last one written, and stays in its own file", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-clone-state-"));
  try {
    await mkdir(ownDir(dir));
    // QEMU truncates the file but keeps its offset, which leaves a hole before the new state
    const path = openStateFile(dir, "clone");
    assert.notEqual(path, openStateFile(dir, "restore"));
    await writeFile(path, Buffer.concat([Buffer.alloc(5000), Buffer.from("QEVM\0state")]));
    await takeOpenState(path, join(dir, "taken"));
    assert.equal(await readFile(join(dir, "taken"), "utf8"), "QEVM\0state");
    await takeOpenState(path, join(dir, "again"));
    assert.equal(await readFile(join(dir, "again"), "utf8"), "QEVM\0state");
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
