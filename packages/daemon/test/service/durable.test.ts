// Durability: data is on disk before it is reported so, and the start repairs an incomplete store.

import assert from "node:assert/strict";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { Images } from "../../src/service/images.ts";
import { Snapshots } from "../../src/service/snapshots.ts";
import { openStore, restarted, type Restarted } from "../../../../tests/helpers/restart.ts";
import { FakeHome } from "../../../runtime/test/pack/fake.ts";
import { recordSyncs } from "../../../runtime/test/util/record-syncs.ts";
import { CALLER, World } from "./helpers/world.ts";
import type { Home } from "@forkd/runtime/home";
import type { Snapshot } from "@forkd/runtime/snapshot/store";
import type { SnapshotRow } from "../../src/store/tables.ts";

type Fixture = { home: Home; fake: FakeHome; py: Snapshot; row: SnapshotRow };

/** A store with the snapshot `py`, whose row is `ready` */
async function fixture(t: TestContext): Promise<Fixture> {
  const fake = await FakeHome.make();
  t.after(async () => fake[Symbol.asyncDispose]());
  const py = await fake.base("py");
  using store = openStore(fake.stores.home);
  const row = snapshotsOf(store).newRow(
    { id: py.manifest.id, tag: "py", memory_mib: 4, vcpus: 1, status: "ready" },
    { principal: "local", project: "default" },
  );
  store.core.tables.snapshots.insert(row);
  return { home: fake.stores.home, fake, py, row };
}

function snapshotsOf({ core, lineage }: Restarted): Snapshots {
  return new Snapshots(core, { lineage, images: new Images(core) });
}

test("a snapshot is complete when its row is on disk", async (t) => {
  const { home, py } = await fixture(t);
  using store = openStore(home);
  const syncs = await recordSyncs(t, home.root);
  store.core.tables.snapshots.update(py.manifest.id, { pool: 1 });
  await snapshotsOf(store).sync(py);
  const [row, manifest] = [/^state\.db-wal$/, /^snapshots\/sn-.*\/manifest\.json/].map((pattern) =>
    syncs.findIndex((path) => pattern.test(path)),
  );
  assert.ok(row !== undefined && manifest !== undefined && row >= 0 && row < manifest, syncs.join(" "));
});

test("a start restores a damaged or missing tag of a snapshot, and does not collect the snapshot", async (t) => {
  const { home, py } = await fixture(t);
  await fakeSynced(home, py);
  const tag = join(home.snapshots, "tags", "py");
  for (const damage of [async () => writeFile(tag, ""), async () => rm(tag)]) {
    await damage();
    using store = await restarted(home);
    assert.equal((await store.snapshots.get("py")).manifest.id, py.manifest.id);
  }
});

test("a start collects a snapshot whose name was removed, and gives its name to no other", async (t) => {
  const { home, fake, py } = await fixture(t);
  const child = await fake.branch("child", py);
  {
    using store = openStore(home);
    // `child` builds on it, so its data stays
    await snapshotsOf(store).remove("py", { force: true, cascade: undefined }, CALLER);
  }
  {
    using store = await restarted(home);
    assert.deepEqual([...(await store.snapshots.tags()).keys()], ["child"]);
    assert.equal((await store.snapshots.ids()).length, 2);
    await store.snapshots.remove("child");
  }
  using store = await restarted(home);
  assert.deepEqual([await store.snapshots.ids(), child.manifest.depth], [[], 1]);
});

async function fakeSynced(home: Home, snapshot: Snapshot): Promise<void> {
  using store = openStore(home);
  await snapshotsOf(store).sync(snapshot);
}

const EIO = Object.assign(new Error("EIO: i/o error, fsync"), { code: "EIO", syscall: "fsync" });

async function isOnDisk(home: Home, id: string): Promise<boolean> {
  return !(await readFile(join(home.snapshots, id, "manifest.json"), "utf8")).includes("unsynced");
}

test("a snapshot that cannot be written to disk is reported once", async (t) => {
  await using world = await World.make();
  const { id } = await world.create("py");
  await recordSyncs(t, world.home.root, (path) => (path.endsWith("/memory.ram") ? EIO : undefined));
  await world.snapshots.syncAll();
  await world.snapshots.syncAll();
  assert.equal(await isOnDisk(world.home, id), false);
  const { warnings } = await world.snapshots.get("py", CALLER);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? "", /Cannot bring snapshot py to disk: EIO.*refused after a power cut/);
  const told = world.store.core.events.list("default").filter(({ type }) => type === "snapshot.updated");
  assert.deepEqual(
    told.map(({ snapshot, reason }) => [snapshot, reason]),
    [["py", warnings[0]]],
  );
});

test("a sandbox is ended only when its saved state is on disk", async () => {
  await using world = await World.make();
  await world.create("py");
  const { id } = await world.fork("py");
  const entry = world.store.registry.get(id, CALLER);
  const { sandbox } = entry;
  assert.ok(sandbox);
  const kill = sandbox.kill.bind(sandbox);
  let atItsEnd: [string, boolean] | undefined;
  sandbox.kill = async () => {
    atItsEnd = [entry.row.state, await isOnDisk(world.home, entry.row.snapshot_id)];
    return kill();
  };
  await world.suspension.suspend(id, CALLER);
  assert.deepEqual(atItsEnd, ["suspended", true]);
});

test("a sandbox whose state cannot be written continues, and so does a workspace", async (t) => {
  await using world = await World.make();
  await world.create("py");
  await world.snapshots.syncAll();
  const { id } = await world.fork("py");
  await world.workspaces.create({ name: "desk", snapshot_tag: "py" }, CALLER);
  await recordSyncs(t, world.home.root, (path) => (path.endsWith("/memory.delta") ? EIO : undefined));
  const goesOn = [
    ["suspension", async () => world.suspension.suspend(id, CALLER), id],
    ["workspace", async () => world.workspaces.suspend("desk", CALLER), (await world.workspaces.get("desk", CALLER)).live_sandbox_id ?? ""],
  ] as const;
  for (const [what, suspend, sandboxId] of goesOn) {
    await assert.rejects(suspend(), { code: "DISK_FAILED" }, what);
    const { row, sandbox } = world.store.registry.get(sandboxId, CALLER);
    assert.deepEqual([row.state, sandbox?.alive, await sandbox?.vm.isRunning()], ["running", true, true], what);
  }
  assert.deepEqual([...(await world.store.snapshots.tags()).keys()], ["py"], "files of it remain");
  assert.equal((await world.store.snapshots.ids()).length, 1);
});

test("a saved state replaces the chain that it was made of when it is on disk; until then the chain stays", async (t) => {
  await using world = await World.make();
  await world.create("py");
  const { id } = await world.fork("py");
  const { registry, snapshots, lineage } = world.store;
  let isBroken = true;
  await recordSyncs(t, world.home.root, (path) => (path.endsWith("/memory.ram") && isBroken ? EIO : undefined));
  isBroken = false;
  const depth = async (): Promise<number> => (await snapshots.byId(registry.get(id, CALLER).row.snapshot_id)).manifest.depth;
  const sleep = async (): Promise<void> => {
    await world.suspension.suspend(id, CALLER);
    await world.suspension.resume(id, CALLER);
    await lineage.settled();
  };
  for (let at = 1; at < 16; at++) await sleep();
  assert.equal(await depth(), 15);
  isBroken = true;
  await sleep();
  assert.equal(await depth(), 16, "the copy was not written");
  isBroken = false;
  await sleep();
  const { snapshot_id: now } = registry.get(id, CALLER).row;
  assert.deepEqual([await depth(), await isOnDisk(world.home, now)], [0, true]);
  assert.deepEqual((await snapshots.ids()).toSorted(), [now, await snapshots.idOf("py")].toSorted(), "the chain is collected");
});

test("a row of a suspended sandbox that reappears after its removal is lost, and names nothing", async () => {
  await using world = await World.make();
  await world.create("py");
  const { id } = await world.fork("py");
  await world.suspension.suspend(id, CALLER);
  const { row } = world.store.registry.get(id, CALLER);
  await world.sandboxes.remove(id, CALLER);
  await world.store.lineage.settled();
  world.store.core.tables.sandboxes.insert(row);
  world.store[Symbol.dispose]();
  using store = await restarted(world.home);
  const { state, reason } = store.registry.get(id, CALLER).row;
  assert.deepEqual([state, reason], ["lost", "its saved state is gone"]);
});

test("the end of a suspended sandbox is on disk when it is acknowledged", async (t) => {
  await using world = await World.make();
  await world.create("py");
  const { id } = await world.fork("py");
  await world.suspension.suspend(id, CALLER);
  await world.store.lineage.settled();
  const syncs = await recordSyncs(t, world.home.root);
  await world.sandboxes.remove(id, CALLER);
  assert.equal(world.store.core.tables.sandboxes.get(id), undefined);
  assert.ok(syncs.includes("state.db-wal"), syncs.join(" "));
});
