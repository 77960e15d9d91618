// Snapshots on disk: names, and what is left of a process that died.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { prepareHome, resolveHome, type Home } from "../../src/home.ts";
import type { SnapshotManifest } from "../../src/snapshot/manifest.ts";
import { SnapshotStore, type Snapshot } from "../../src/snapshot/store.ts";

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

test("a tag is given once, also when two want it at the same time", async () => {
  const wants = await Promise.allSettled([store.reserve("t"), store.reserve("t"), store.reserve("t")]);
  assert.equal(wants.filter(({ status }) => status === "fulfilled").length, 1);
  await store.release("t");
  await publish("t");
  await assert.rejects(store.reserve("t"), { code: "EXISTS" });
});

test("a reservation of a process that is gone is taken over, and swept", async () => {
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

test("one that was not on disk when the host went down is refused, and can be removed", async () => {
  const snapshot = await publish("t");
  assert.equal((await store.get("t")).manifest.id, snapshot.manifest.id);
  // as a power cut in another boot would have left it
  await writeFile(join(snapshot.dir, "unsynced"), "another boot");
  await assert.rejects(store.get("t"), { code: "SNAPSHOT_INVALID", message: /before it was on disk/ });
  assert.deepEqual(await store.list(), []);
  await store.remove("t");
  assert.equal(existsSync(snapshot.dir), false);
});

test("one that is on disk stays usable in every boot", async () => {
  const snapshot = await publish("t");
  assert.ok(existsSync(join(snapshot.dir, "unsynced")));
  await store.sync(snapshot);
  assert.ok(!existsSync(join(snapshot.dir, "unsynced")));
  await store.sync(snapshot);
  assert.equal((await store.get("t")).manifest.tag, "t");
});

test("renamed, it is the same one", async () => {
  const snapshot = await publish("t");
  await publish("taken");
  await assert.rejects(store.rename("t", "taken"), { code: "EXISTS" });
  await assert.rejects(store.rename("t", "../x"), { code: "BAD_NAME" });
  const renamed = await store.rename("t", "u");
  assert.equal(renamed.manifest.id, snapshot.manifest.id);
  assert.equal((await store.get("u")).manifest.tag, "u");
  await assert.rejects(store.get("t"), { code: "NOT_FOUND" });
});

test("what another one builds on is not removed, with or without a name", async () => {
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

test("a snapshot from before there were disks has none", async () => {
  const { dir: folder } = await publish("old");
  const path = join(folder, "manifest.json");
  const { disk: _disk, ...rest } = JSON.parse(await readFile(path, "utf8")) as Record<string, unknown>;
  await writeFile(path, JSON.stringify(rest));
  const { manifest, layers } = await store.get("old");
  assert.equal(manifest.disk, null);
  assert.deepEqual(layers, []);
});

test("the layers of a disk are files of the snapshot's folder, and only those", async () => {
  const { dir: folder, manifest } = await publish("disk");
  const path = join(folder, "manifest.json");
  const ids = ["dk-aaaaaaaaaaaaaaaa", "dk-bbbbbbbbbbbbbbbb"];
  await writeFile(path, JSON.stringify({ ...manifest, disk: { sizeMiB: 64, layers: ids } }));
  assert.deepEqual(
    (await store.get("disk")).layers.map((layer) => layer.path),
    [join(folder, `${ids[0]}.raw`), join(folder, `${ids[1]}.qcow2`)],
  );
  await writeFile(path, JSON.stringify({ ...manifest, disk: { sizeMiB: 64, layers: ["../../etc/passwd"] } }));
  await assert.rejects(store.get("disk"), { code: "SNAPSHOT_INVALID" });
});

test("a snapshot is on disk only when its layers are", async () => {
  const { manifest, dir: folder } = await publish("sync");
  await writeFile(join(folder, "manifest.json"), JSON.stringify({ ...manifest, disk: { sizeMiB: 64, layers: ["dk-aaaaaaaaaaaaaaaa"] } }));
  await assert.rejects(store.sync(await store.get("sync")), { code: "ENOENT", path: /dk-aaaaaaaaaaaaaaaa\.raw$/ });
  assert.ok(existsSync(join(folder, "unsynced")));
});
