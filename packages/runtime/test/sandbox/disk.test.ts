// The disk of one VM: freezes that succeed, that fail, and that the daemon's death interrupts.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { layersIn, type Layer } from "../../src/disk/layer.ts";
import { SandboxDisk } from "../../src/sandbox/disk.ts";
import type { Snapshot } from "../../src/snapshot/store.ts";
import type { DiskControl } from "../../src/vmm/driver.ts";

const BASE = ["dk-aaaaaaaaaaaaaaaa", "dk-bbbbbbbbbbbbbbbb"];
const SIZE_MIB = 64;

/** A VMM without data: only its open layers and the active one */
class FakeVmm implements DiskControl {
  readonly open = new Set<string>();
  writes: string;
  sealed = 0;
  /** the next command of this name fails */
  fails: keyof DiskControl | undefined;

  constructor(active: string) {
    this.writes = active;
    this.open.add(active);
  }

  async active(): Promise<string> {
    return this.writes;
  }

  async known(): Promise<string[]> {
    return [...this.open];
  }

  async add(layer: Layer): Promise<void> {
    assert.ok(existsSync(layer.path), "a layer is there before it is opened");
    this.#failIfTold("add");
    this.open.add(layer.id);
  }

  async freeze(active: string, next: string): Promise<void> {
    this.#failIfTold("freeze");
    assert.equal(active, this.writes);
    assert.ok(this.open.has(next));
    this.writes = next;
  }

  async seal(active: Layer): Promise<void> {
    assert.equal(active.id, this.writes);
    assert.ok(existsSync(active.path));
    this.sealed++;
  }

  async drop(id: string): Promise<void> {
    assert.notEqual(id, this.writes, "the layer that takes the writes is never closed");
    assert.ok(this.open.delete(id), `${id} is not open`);
  }

  async restack(active: Layer, onto: Layer): Promise<void> {
    this.#failIfTold("restack");
    assert.equal(active.id, this.writes);
    this.open.add(onto.id);
  }

  #failIfTold(command: keyof DiskControl): void {
    if (this.fails !== command) return;
    this.fails = undefined;
    throw new Error(`${command} failed`);
  }
}

let dir: string;
let snapshot: Snapshot;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "forkd-disk-"));
  for (const name of ["snapshot", "saved"]) await mkdir(join(dir, name));
  const layers = layersIn(join(dir, "snapshot"), BASE);
  for (const { path } of layers) await writeFile(path, path);
  snapshot = { layers } as Snapshot;
});
afterEach(async () => rm(dir, { recursive: true, force: true }));

const folder = (): string => join(dir, "vm");
const files = async (): Promise<string[]> =>
  (await readdir(folder(), { recursive: true })).filter((name) => /\.(raw|qcow2)$/.test(name)).toSorted();

async function start(): Promise<{ disk: SandboxDisk; vmm: FakeVmm }> {
  const disk = await SandboxDisk.above(folder(), SIZE_MIB, snapshot);
  return { disk, vmm: new FakeVmm(disk.spec.active.id) };
}

async function freeze(disk: SandboxDisk, vmm: FakeVmm): Promise<void> {
  await disk.prepare(vmm);
  await disk.freeze(vmm);
}

const idsOf = (layers: readonly Layer[]): string[] => layers.map(({ id }) => id);

/** Adoption of the same folder and VMM by a new daemon */
async function adopted(vmm: FakeVmm): Promise<SandboxDisk> {
  return SandboxDisk.found(folder(), SIZE_MIB, snapshot, vmm);
}

test("a child writes to its own layer above those of its snapshot", async () => {
  const { disk } = await start();
  assert.deepEqual(idsOf(disk.spec.below), BASE);
  assert.ok(disk.spec.active.path.startsWith(folder()));
  await disk.remove();
  assert.ok(!existsSync(folder()));
  assert.deepEqual((await readdir(join(dir, "snapshot"))).length, 2, "the snapshot keeps its own");
});

test("a freeze adds the active layer to the saved ones, and activates the next one", async () => {
  const { disk, vmm } = await start();
  const first = disk.spec.active.id;
  await freeze(disk, vmm);
  const second = disk.spec.active.id;
  await freeze(disk, vmm);
  assert.deepEqual(idsOf(disk.spec.below), [...BASE, first, second]);
  assert.equal(disk.spec.active.id, vmm.writes);
  const saved = join(dir, "saved");
  assert.deepEqual(await disk.saveFrozen(vmm, saved), [...BASE, first, second]);
  await disk.remove();
  assert.deepEqual(
    (await readdir(saved)).toSorted(),
    [`${BASE[0]}.raw`, `${BASE[1]}.qcow2`, `${first}.qcow2`, `${second}.qcow2`].toSorted(),
    "saved layers do not need the VM's folder",
  );
});

test("saved layers are inaccessible to the VMM, and the others are accessible", async () => {
  const { disk, vmm } = await start();
  const first = disk.spec.active.id;
  await freeze(disk, vmm);
  await disk.saveFrozen(vmm, join(dir, "saved"));
  assert.equal(vmm.sealed, 1);
  assert.deepEqual(await readdir(join(folder(), "vmm")), [basename(disk.spec.active.path)]);
  assert.equal(disk.spec.active.path, join(folder(), "vmm", basename(disk.spec.active.path)));
  assert.ok((await files()).some((name) => name.includes(first)));
  assert.deepEqual((await adopted(vmm)).spec, disk.spec);
});

test("a clone's layer has its own id, and the name of its original in the VMM, also for a later process", async () => {
  const source = await SandboxDisk.above(join(dir, "zygote"), SIZE_MIB, snapshot);
  const vmm = new FakeVmm(source.spec.active.id);
  const disk = await SandboxDisk.copyOf(folder(), source, snapshot);
  const first = disk.spec.active.id;
  assert.notEqual(first, source.spec.active.id);
  await copyFile(source.spec.active.path, disk.spec.active.path);
  assert.deepEqual((await adopted(vmm)).spec, disk.spec);
  await freeze(disk, vmm);
  assert.deepEqual(idsOf(disk.spec.below), [...BASE, first]);
  assert.deepEqual((await adopted(vmm)).spec, disk.spec);
});

test("a link in place of a layer is not saved", async () => {
  const { disk, vmm } = await start();
  const { path } = disk.spec.active;
  await freeze(disk, vmm);
  await rm(path);
  await symlink("/etc/passwd", path);
  await assert.rejects(disk.saveFrozen(vmm, join(dir, "saved")), { code: "VMM_FAILED" });
});

for (const command of ["add", "freeze"] as const) {
  test(`when ${command} fails, the disk is unchanged and no file remains`, async () => {
    const { disk, vmm } = await start();
    const before = { spec: disk.spec, files: await files(), open: [...vmm.open] };
    vmm.fails = command;
    await assert.rejects(freeze(disk, vmm));
    await disk.settle(vmm);
    assert.deepEqual({ spec: disk.spec, files: await files(), open: [...vmm.open] }, before);
    await freeze(disk, vmm);
    assert.equal(disk.spec.below.length, BASE.length + 1);
  });
}

test("a freeze that was executed although its answer was lost counts", async () => {
  const { disk, vmm } = await start();
  const first = disk.spec.active.id;
  await disk.prepare(vmm);
  vmm.freeze = async (active, next) => {
    await FakeVmm.prototype.freeze.call(vmm, active, next);
    throw new Error("no answer in time");
  };
  await assert.rejects(disk.freeze(vmm));
  vmm.freeze = FakeVmm.prototype.freeze.bind(vmm);
  const second = vmm.writes;
  await freeze(disk, vmm);
  assert.deepEqual(idsOf(disk.spec.below), [...BASE, first, second]);
});

test("an unprepared freeze is refused", async () => {
  const { disk, vmm } = await start();
  await assert.rejects(disk.freeze(vmm), { code: "INTERNAL" });
});

test("a layer that a failed branch froze is sealed before the next freeze", async () => {
  const { disk, vmm } = await start();
  const first = disk.spec.active.path;
  await freeze(disk, vmm);
  assert.deepEqual([vmm.sealed, existsSync(first)], [0, true]);
  await disk.prepare(vmm);
  assert.deepEqual([vmm.sealed, existsSync(first)], [1, false]);
  assert.ok((await files()).includes(basename(first)));
});

test("the disk of a copy has an active layer of its own, by the name of the next one", async () => {
  const { disk, vmm } = await start();
  await assert.rejects(disk.forCopy(join(dir, "copy")), { code: "INTERNAL" });
  await disk.prepare(vmm);
  const { disk: copy, next } = await disk.forCopy(join(dir, "copy"));
  const { active } = copy.spec;
  assert.ok(active.path.startsWith(join(dir, "copy")) && active.id !== next.id);
  await disk.freeze(vmm);
  assert.equal(disk.spec.active.id, next.id);
  await copyFile(next.path, active.path);
  const child = await SandboxDisk.copyOf(join(dir, "child"), copy, snapshot);
  await copyFile(active.path, child.spec.active.path);
  assert.equal((await SandboxDisk.found(join(dir, "child"), SIZE_MIB, snapshot, vmm)).spec.active.path, child.spec.active.path);
  await copy.remove();
  assert.ok(!existsSync(join(dir, "copy")));
});

test("after a crash before a freeze the disk is unchanged", async () => {
  const { disk, vmm } = await start();
  await freeze(disk, vmm);
  await disk.saveFrozen(vmm, join(dir, "saved"));
  const before = { spec: disk.spec, files: await files(), open: [...vmm.open] };
  await disk.prepare(vmm);
  const again = await adopted(vmm);
  assert.deepEqual({ spec: again.spec, files: await files(), open: [...vmm.open] }, before);
});

test("after a crash just after a freeze the frozen layer is found", async () => {
  const { disk, vmm } = await start();
  const first = disk.spec.active.id;
  await disk.prepare(vmm);
  await disk.freeze(vmm);
  const again = await adopted(vmm);
  assert.deepEqual(idsOf(again.spec.below), [...BASE, first]);
  assert.equal(again.spec.active.id, vmm.writes);
});

test("a layer that the VMM has not opened yet is removed after a crash", async () => {
  const { disk, vmm } = await start();
  const before = await files();
  vmm.fails = "add";
  await assert.rejects(disk.prepare(vmm));
  assert.equal((await files()).length, 2);
  await adopted(vmm);
  assert.deepEqual(await files(), before);
});

test("a VMM that writes to a missing layer is not adopted", async () => {
  const { vmm } = await start();
  vmm.writes = "dk-zzzzzzzzzzzzzzzz";
  await assert.rejects(adopted(vmm), { code: "VMM_FAILED" });
});

async function flatLayer(): Promise<Layer> {
  const layer = { id: "dk-ffffffffffffffff", format: "raw", path: join(dir, "saved", "flat.raw") } as const;
  await writeFile(layer.path, "flat");
  return layer;
}

test("one layer replaces all frozen ones, also for a later daemon", async () => {
  const { disk, vmm } = await start();
  for (let at = 0; at < 3; at++) await freeze(disk, vmm);
  const flat = await flatLayer();
  await disk.restack(vmm, flat);
  assert.deepEqual(idsOf(disk.spec.below), [flat.id]);
  assert.deepEqual(vmm.open, new Set([flat.id, vmm.writes]));
  assert.equal((await files()).length, 2);
  assert.deepEqual((await adopted(vmm)).spec, disk.spec);
  await freeze(disk, vmm);
  assert.equal(disk.spec.below.length, 2);
  assert.deepEqual((await adopted(vmm)).spec, disk.spec);
});

test("when that fails, the stack is unchanged", async () => {
  const { disk, vmm } = await start();
  for (let at = 0; at < 3; at++) await freeze(disk, vmm);
  const before = { spec: disk.spec, files: await files() };
  vmm.fails = "restack";
  await assert.rejects(disk.restack(vmm, await flatLayer()));
  assert.deepEqual({ spec: disk.spec, files: await files() }, before);
});
