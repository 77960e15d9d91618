// Snapshots on disk: tags, and leftovers of a process that died.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { link, mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { prepareHome, resolveHome, type Home } from "../../src/home.ts";
import type { SnapshotManifest } from "../../src/snapshot/manifest.ts";
import { SnapshotStore, type Snapshot } from "../../src/snapshot/store.ts";
import { recordSyncs } from "../util/record-syncs.ts";

let dir: string;
let home: Home;
let store: SnapshotStore;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "forkd-snapshots-"));
  home = await prepareHome(resolveHome({ FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run") }));
  store = new SnapshotStore(home);
});

afterEach(async () => rm(dir, { recursive: true, force: true }));

async function publish(tag: string, base?: Snapshot): Promise<Snapshot> {
  await store.reserve(tag);
  const staged = join(home.staging, tag);
  await mkdir(staged);
  await writeFile(join(staged, base ? "memory.delta" : "memory.ram"), "memory");
  await writeFile(join(staged, "device.state"), "state");
  const manifest: SnapshotManifest = {
    version: 1,
    id: `sn-${tag}`,
    tag,
    createdAt: new Date().toISOString(),
    shape: { engine: "qemu", engineVersion: "7.2.0", machine: "m", cpu: "c", accelerator: "tcg", vcpus: 1, memoryMiB: 64 },
    imageId: "sha256:0",
    guestKernelId: "k",
    agentKey: "0".repeat(32),
    memory: base ? { kind: "delta", base: base.manifest.id, pages: 1, bytes: 4096 } : { kind: "base", bytes: 4096 },
    disk: null,
    deviceStateBytes: 5,
    kernels: [],
    env: {},
    network: { mode: "none", allow: [], egressLimitBytes: null },
    mounts: [],
    branchedFrom: null,
    depth: base ? base.manifest.depth + 1 : 0,
  };
  const snapshot = await store.publish(staged, manifest);
  await store.release(tag);
  return snapshot;
}

type Stored = SnapshotManifest & { unsynced?: { boot: string; error?: string } };

async function storedManifest({ dir: folder }: Snapshot): Promise<Stored> {
  return JSON.parse(await readFile(join(folder, "manifest.json"), "utf8")) as Stored;
}

async function changeManifest(snapshot: Snapshot, change: Partial<Stored>): Promise<void> {
  await writeFile(join(snapshot.dir, "manifest.json"), JSON.stringify({ ...(await storedManifest(snapshot)), ...change }));
}

async function isUnsynced(snapshot: Snapshot): Promise<boolean> {
  return (await storedManifest(snapshot)).unsynced !== undefined;
}

test("a tag is reserved once, also by concurrent callers", async () => {
  const wants = await Promise.allSettled([store.reserve("t"), store.reserve("t"), store.reserve("t")]);
  assert.equal(wants.filter(({ status }) => status === "fulfilled").length, 1);
  await store.release("t");
  await publish("t");
  await assert.rejects(store.reserve("t"), { code: "EXISTS" });
});

test("a reservation of an ended process is taken over, and swept", async () => {
  const reservation = join(home.snapshots, "tags", "t.reserved.tmp");
  await mkdir(reservation, { recursive: true });
  await writeFile(join(reservation, "owner.json"), JSON.stringify({ pid: 1, startTime: "not init's" }));
  assert.equal(await store.isReserved("t"), false);
  await store.reserve("t");
  assert.equal(await store.isReserved("t"), true);
  await store.sweep();
  assert.equal(await store.isReserved("t"), true);
  await writeFile(join(reservation, "owner.json"), JSON.stringify({ pid: 1, startTime: "not init's" }));
  const halfWritten = join(home.snapshots, "tags", "u.123.abc.tmp");
  await writeFile(halfWritten, "sn");
  const longAgo = new Date(Date.now() - 3_600_000);
  await utimes(halfWritten, longAgo, longAgo);
  await store.sweep();
  assert.deepEqual(await readdir(join(home.snapshots, "tags")), []);
});

test("a snapshot that was not on disk at a power cut is refused, and can be removed", async () => {
  const snapshot = await publish("t");
  assert.equal((await store.get("t")).manifest.id, snapshot.manifest.id);
  // as after a power cut in another boot
  await changeManifest(snapshot, { unsynced: { boot: "another boot" } });
  await assert.rejects(store.get("t"), { code: "SNAPSHOT_INVALID", message: /before it was on disk/ });
  assert.deepEqual(await store.list(), []);
  await store.remove("t");
  assert.equal(existsSync(snapshot.dir), false);
});

test("a snapshot on disk stays usable in every boot", async () => {
  const snapshot = await publish("t");
  assert.ok(await isUnsynced(snapshot));
  await store.sync(snapshot.manifest.id);
  assert.ok(!(await isUnsynced(snapshot)));
  await store.sync(snapshot.manifest.id);
  assert.equal((await store.get("t")).manifest.tag, "t");
});

test("the final manifest is written after all files, the folder, the tag and the snapshots below are on disk", async (t) => {
  const base = await publish("base");
  const child = await publish("child", base);
  const syncs = await recordSyncs(t, home.root);
  await store.sync(child.manifest.id);
  const done = (id: string): number => syncs.findLastIndex((path) => path === `snapshots/${id}`);
  const before = (id: string): string[] =>
    syncs.slice(
      0,
      syncs.findLastIndex((path) => path.startsWith(`snapshots/${id}/manifest.json`)),
    );
  for (const [id, tag, memory] of [
    ["sn-base", "base", "memory.ram"],
    ["sn-child", "child", "memory.delta"],
  ] as const) {
    const files = [`snapshots/${id}/${memory}`, `snapshots/${id}/device.state`, `snapshots/${id}`, "snapshots", `snapshots/tags/${tag}`];
    for (const path of [...files, "snapshots/tags"]) assert.ok(before(id).includes(path), `${path} before ${syncs.join(" ")}`);
    assert.ok(done(id) > syncs.findLastIndex((path) => path.startsWith(`snapshots/${id}/manifest.json`)), "the manifest's name too");
  }
  assert.ok(done("sn-base") < syncs.indexOf("snapshots/sn-child/memory.delta"), "what it builds on first");
});

test("the rename of a snapshot on disk is on disk when it returns", async (t) => {
  const { manifest } = await publish("t");
  await store.sync(manifest.id);
  const syncs = await recordSyncs(t, home.root);
  await store.rename("t", "u");
  assert.deepEqual(
    syncs.filter((path) => path.startsWith("snapshots/tags")),
    ["snapshots/tags/t", "snapshots/tags"],
  );
  const own = syncs.filter((path) => path.startsWith(`snapshots/${manifest.id}`));
  assert.match(own[0] ?? "", /manifest\.json\..*tmp$/);
  assert.equal(own.at(-1), `snapshots/${manifest.id}`);
});

test("a rename during the sync is kept", async () => {
  const { manifest } = await publish("t");
  await Promise.all([store.sync(manifest.id), store.rename("t", "u"), store.sync(manifest.id)]);
  assert.equal((await store.byId(manifest.id)).manifest.tag, "u");
  assert.ok(!(await isUnsynced(await store.get("u"))));
});

test("a tag that a power cut emptied, or whose snapshot is lost, is damaged and then swept; a valid one stays", async () => {
  await publish("right");
  for (const [tag, content] of [
    ["empty", ""],
    ["away", "sn-aaaaaaaaaaaaaaaa"],
  ] as const)
    await writeFile(join(home.snapshots, "tags", tag), content);
  await assert.rejects(store.get("empty"), { code: "SNAPSHOT_INVALID", message: /its tag is damaged/ });
  await assert.rejects(store.get("away"), { code: "NOT_FOUND" });
  await store.sweep();
  assert.deepEqual([...(await store.tags()).keys()], ["right"]);
  for (const tag of ["empty", "away"]) await publish(tag);
});

test("a snapshot with a failed write is never complete, in any process of this boot", async (t) => {
  const snapshot = await publish("t");
  const { id } = snapshot.manifest;
  let failures = 0;
  const syncs = await recordSyncs(t, home.root, (path) => {
    if (!path.endsWith("/memory.ram") || failures++ > 0) return undefined;
    return Object.assign(new Error("EIO: i/o error, fsync"), { code: "EIO", syscall: "fsync" });
  });
  const refused = { code: "DISK_FAILED", message: /EIO: i\/o error/ };
  await assert.rejects(store.sync(id), refused);
  const asked = syncs.length;
  for (const process of [store, new SnapshotStore(home)]) await assert.rejects(process.sync(id), refused);
  assert.deepEqual([syncs.length, failures], [asked, 1], "the disk is written again");
  assert.equal((await store.get("t")).manifest.id, id, "its pages are in memory until the host restarts");
  assert.equal((await storedManifest(snapshot)).unsynced?.error, "EIO: i/o error, fsync");
  await store.rename("t", "u");
  await assert.rejects(new SnapshotStore(home).sync(id), refused);
  await changeManifest(snapshot, { unsynced: { boot: "another boot" } });
  await assert.rejects(new SnapshotStore(home).get("u"), { code: "SNAPSHOT_INVALID" });
});

test("a layer with a failed write keeps every snapshot with it incomplete, also after a restart", async (t) => {
  const layer = "dk-aaaaaaaaaaaaaaaa";
  const withLayer = async (tag: string, fill: (path: string) => Promise<void>): Promise<string> => {
    const snapshot = await publish(tag);
    await fill(join(snapshot.dir, `${layer}.raw`));
    await changeManifest(snapshot, { disk: { sizeMiB: 64, layers: [layer] } });
    return join(snapshot.dir, `${layer}.raw`);
  };
  const file = await withLayer("one", async (path) => writeFile(path, "disk"));
  for (const tag of ["two", "three"]) await withLayer(tag, async (path) => link(file, path));
  let failures = 0;
  await recordSyncs(t, home.root, (path) => {
    if (!path.endsWith(`${layer}.raw`) || failures++ > 0) return undefined;
    return Object.assign(new Error("ENOSPC: no space left on device, fsync"), { code: "ENOSPC", syscall: "fsync" });
  });
  const refused = { code: "DISK_FAILED", message: /ENOSPC/ };
  for (const tag of ["one", "two"]) await assert.rejects(store.sync(`sn-${tag}`), refused);
  assert.ok(await isUnsynced(await store.get("two")));

  await store.remove("one");
  const restarted = new SnapshotStore(home);
  await restarted.sweep();
  await assert.rejects(restarted.sync("sn-three"), refused);
  assert.equal(failures, 1, "the disk is written again");
  // the same layer, unpacked again: another file
  await withLayer("four", async (path) => writeFile(path, "disk"));
  await restarted.sync("sn-four");

  const notes = join(home.snapshots, "failed-layers");
  const [name = ""] = await readdir(notes);
  for (const content of ["", JSON.stringify({ boot: "another boot", error: "ENOSPC" })]) {
    await writeFile(join(notes, name), content);
    await new SnapshotStore(home).sweep();
    assert.deepEqual(await readdir(notes), []);
  }
});

test("a delta file with a failed write keeps every branch with it incomplete, and is not shared further", async (t) => {
  const base = await publish("base");
  const one = await publish("one", base);
  const two = await publish("two", base);
  await link(one.memory, join(two.dir, "memory-1.delta"));
  await changeManifest(two, { memory: { kind: "delta", base: base.manifest.id, pages: 1, bytes: 4096, earlier: [4096] } });
  assert.deepEqual((await store.get("two")).deltas, [join(two.dir, "memory-1.delta"), two.memory]);
  assert.equal((await store.shareable("sn-one"))?.manifest.id, "sn-one");
  let failures = 0;
  await recordSyncs(t, home.root, (path) => {
    if (!path.endsWith("sn-one/memory.delta") || failures++ > 0) return undefined;
    return Object.assign(new Error("EIO: i/o error, fsync"), { code: "EIO", syscall: "fsync" });
  });
  const refused = { code: "DISK_FAILED", message: /EIO/ };
  await assert.rejects(store.sync("sn-one"), refused);
  assert.equal(await store.shareable("sn-one"), undefined);
  await assert.rejects(new SnapshotStore(home).sync("sn-two"), refused);
  assert.equal(await new SnapshotStore(home).shareable("sn-two"), undefined);
  assert.equal(failures, 1, "the disk is written again");
  assert.equal(await store.shareable("sn-missing"), undefined);
});

test("each of two branches with a common delta file can be removed", async () => {
  const base = await publish("base");
  const one = await publish("one", base);
  const two = await publish("two", base);
  await link(one.memory, join(two.dir, "memory-1.delta"));
  await changeManifest(two, { memory: { kind: "delta", base: base.manifest.id, pages: 1, bytes: 4096, earlier: [4096] } });
  await store.remove("one");
  for (const path of (await store.get("two")).deltas) assert.equal(await readFile(path, "utf8"), "memory");
  await store.remove("two");
  await store.remove("base");
});

test("a renamed snapshot keeps its id and data", async () => {
  const snapshot = await publish("t");
  await publish("taken");
  await assert.rejects(store.rename("t", "taken"), { code: "EXISTS" });
  await assert.rejects(store.rename("t", "../x"), { code: "BAD_NAME" });
  const renamed = await store.rename("t", "u");
  assert.equal(renamed.manifest.id, snapshot.manifest.id);
  assert.equal((await store.get("u")).manifest.tag, "u");
  await assert.rejects(store.get("t"), { code: "NOT_FOUND" });
});

test("a snapshot that others build on is not removed, with or without a tag", async () => {
  const base = await publish("base");
  const child = await publish("child", base);
  const grandchild = await publish("grandchild", child);
  await store.untag(child.manifest.id);
  await assert.rejects(store.get("child"), { code: "NOT_FOUND" });
  assert.equal((await store.get(child.manifest.id)).manifest.id, child.manifest.id);
  await assert.rejects(store.remove("base"), { code: "IN_USE" });
  await assert.rejects(store.remove(child.manifest.id), { code: "IN_USE" });
  assert.deepEqual((await store.everything()).map(({ manifest }) => manifest.id).toSorted(), ["sn-base", "sn-child", "sn-grandchild"]);
  await store.remove(grandchild.manifest.tag);
  await store.remove(child.manifest.id);
  await store.remove("base");
  assert.deepEqual(await store.ids(), []);
});

test("a snapshot from before disks has none", async () => {
  const { dir: folder } = await publish("old");
  const path = join(folder, "manifest.json");
  const { disk: _disk, ...rest } = JSON.parse(await readFile(path, "utf8")) as Record<string, unknown>;
  await writeFile(path, JSON.stringify(rest));
  const { manifest, layers } = await store.get("old");
  assert.equal(manifest.disk, null);
  assert.deepEqual(layers, []);
});

test("the layers of a disk are exactly the layer files of the snapshot's folder", async () => {
  const snapshot = await publish("disk");
  const folder = snapshot.dir;
  const ids = ["dk-aaaaaaaaaaaaaaaa", "dk-bbbbbbbbbbbbbbbb"];
  await changeManifest(snapshot, { disk: { sizeMiB: 64, layers: ids } });
  assert.deepEqual(
    (await store.get("disk")).layers.map((layer) => layer.path),
    [join(folder, `${ids[0]}.raw`), join(folder, `${ids[1]}.qcow2`)],
  );
  await changeManifest(snapshot, { disk: { sizeMiB: 64, layers: ["../../etc/passwd"] } });
  await assert.rejects(store.get("disk"), { code: "SNAPSHOT_INVALID" });
});

test("a snapshot is on disk only when its layers are", async () => {
  const snapshot = await publish("sync");
  await changeManifest(snapshot, { disk: { sizeMiB: 64, layers: ["dk-aaaaaaaaaaaaaaaa"] } });
  await assert.rejects(store.sync(snapshot.manifest.id), { code: "ENOENT", path: /dk-aaaaaaaaaaaaaaaa\.raw$/ });
  assert.ok(await isUnsynced(await store.get("sync")));
});
