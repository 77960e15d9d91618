// A snapshot between the creation of its folder and its ready state.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { Images } from "../../src/service/images.ts";
import { Snapshots } from "../../src/service/snapshots.ts";
import { treeOf } from "../../src/service/tree.ts";
import { Db } from "../../src/store/db.ts";
import { tablesOf } from "../../src/store/tables.ts";
import { tempDir } from "../../../runtime/test/image/helpers/temp-home.ts";
import type { TestContext } from "node:test";
import type { Core } from "../../src/service/core.ts";
import type { Lineage } from "../../src/service/lineage.ts";
import type { Registry } from "../../src/service/registry.ts";
import { FAKE_MACHINE, FAKE_RULES } from "../../../../tests/helpers/fake-engine.ts";
import type { Snapshot } from "@forkd/runtime/snapshot/store";
import type { Tables } from "../../src/store/tables.ts";

const MANIFEST = {
  tag: "next",
  id: "sn-1",
  createdAt: "2026-01-01T00:00:00Z",
  imageId: "sha256:1",
  shape: { ...FAKE_MACHINE, accelerator: "tcg", memoryMiB: 256, vcpus: 1 },
  memory: { kind: "delta", base: "sn-0", pages: 1, bytes: 4096 },
  kernels: [],
  disk: null,
  depth: 1,
  branchedFrom: "sb-1",
  network: { mode: "none", allow: [] },
};

type Fixture = { core: Core; snapshots: Snapshots; tables: Tables; onDisk: Snapshot[]; listing: { begun: () => void } };

/** A branch whose row is `writing` */
const VIEWER = { principal: "local", project: "default" };

async function fixture(t: TestContext): Promise<Fixture> {
  const db = new Db(join(await tempDir(t), "state.db"));
  t.after(() => db.close());
  const tables = tablesOf(db);
  const onDisk: Snapshot[] = [];
  const listing = { begun: (): void => undefined };
  const store = {
    list: async () => {
      const found = [...onDisk];
      listing.begun();
      return found;
    },
    everything: async () => [...onDisk],
    tags: async () => new Map(onDisk.map(({ manifest }) => [manifest.tag, manifest.id])),
    get: async () => onDisk[0],
    ids: async () => onDisk.map(({ manifest }) => manifest.id),
    tagged: async (tag: string) => onDisk.find(({ manifest }) => manifest.tag === tag)?.manifest.id,
  };
  const runtime = {
    snapshots: store,
    images: { list: async () => [] },
    accelerator: { accelerator: "tcg", reason: "asked for" },
    engine: FAKE_RULES,
  };
  const core = { tables, db, runtime, log: { warn: () => undefined } } as unknown as Core;
  const snapshots = new Snapshots(core, { lineage: {} as unknown as Lineage, images: new Images(core) });
  tables.snapshots.insert(snapshots.newRow({ id: "sn-1", tag: "next", memory_mib: 256, vcpus: 1, branched_from: "sb-1" }, VIEWER));
  return { core, snapshots, tables, onDisk, listing };
}

const published = { manifest: MANIFEST, dir: "/store/sn-1", layers: [] } as unknown as Snapshot;

async function statuses({ core, snapshots }: Fixture): Promise<string[]> {
  const { items } = await snapshots.list({}, VIEWER);
  const { roots } = await treeOf(core, { byId: () => undefined, lasting: [] } as unknown as Registry, VIEWER);
  return [...items.map(({ status }) => status), (await snapshots.get("next", VIEWER)).status, ...roots.map(({ status }) => status)];
}

test("is listed as ready when it can be forked, and not before", async (t) => {
  const made = await fixture(t);
  assert.deepEqual(await statuses(made), ["writing", "writing", "writing"]);
  made.onDisk.push(published);
  assert.deepEqual(await statuses(made), ["writing", "writing", "writing"]);
  for (const name of ["next", "sn-1"]) await assert.rejects(made.snapshots.usable(name, VIEWER), { code: "SNAPSHOT_NOT_READY" });
  assert.deepEqual((await made.snapshots.list({ status: "ready" }, VIEWER)).items, []);
  made.tables.snapshots.update("sn-1", { status: "ready" });
  assert.deepEqual(await statuses(made), ["ready", "ready", "ready"]);
  for (const name of ["next", "sn-1"]) assert.equal((await made.snapshots.usable(name, VIEWER)).manifest.id, "sn-1");
});

test("does not vanish from a list while it becomes ready", async (t) => {
  const made = await fixture(t);
  made.listing.begun = () => {
    made.onDisk.push(published);
    made.tables.snapshots.update("sn-1", { status: "ready" });
    made.listing.begun = () => undefined;
  };
  const { items } = await made.snapshots.list({}, VIEWER);
  assert.deepEqual(
    items.map(({ tag, status }) => [tag, status]),
    [["next", "writing"]],
  );
});
