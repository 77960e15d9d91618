// Bytes that garbage collection reports as freed.

import assert from "node:assert/strict";
import { link, mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { layersIn } from "@forkd/runtime/disk/layer";
import type { GcResult } from "../../src/api/daemon.ts";
import type { Core } from "../../src/service/core.ts";
import { collectGarbage } from "../../src/service/gc.ts";
import type { Lineage } from "../../src/service/lineage.ts";
import type { Snapshot } from "@forkd/runtime/snapshot/store";

const BASE = "dk-aaaaaaaaaaaaaaaa";
const TOP = "dk-bbbbbbbbbbbbbbbb";
const MEMORY_BYTES = 1000;
const STATE_BYTES = 10;

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "forkd-gc-"));
  await mkdir(join(dir, "kernels"));
});
afterEach(async () => rm(dir, { recursive: true, force: true }));

async function snapshot(tag: string, ids: string[], shared?: Snapshot): Promise<Snapshot> {
  const folder = join(dir, tag);
  await mkdir(folder);
  const layers = layersIn(folder, ids);
  for (const [at, { path }] of layers.entries()) {
    const same = shared?.layers[at];
    if (same) await link(same.path, path);
    else await writeFile(path, Buffer.alloc(100_000, 1));
  }
  const manifest = { tag, memory: { kind: "base", bytes: MEMORY_BYTES }, deviceStateBytes: STATE_BYTES };
  return { manifest, layers, deltas: [] } as unknown as Snapshot;
}

type There = { images?: object[]; snapshots?: object[]; writing?: object[] };

async function removedWith(unneeded: Snapshot[], { images = [], snapshots = [], writing = [] }: There = {}): Promise<GcResult["removed"]> {
  const core = {
    home: { guestKernels: join(dir, "kernels"), cache: join(dir, "cache") },
    runtime: {
      flats: { unused: async () => [] },
      images: { list: async () => images },
      snapshots: { everything: async () => snapshots },
    },
    tables: { snapshots: { where: () => writing } },
  };
  const lineage = { unneeded: async () => unneeded };
  const { removed, dry_run } = await collectGarbage(core as unknown as Core, lineage as unknown as Lineage, true);
  assert.equal(dry_run, true);
  return removed;
}

async function garbage(unneeded: Snapshot[]): Promise<number[]> {
  return (await removedWith(unneeded)).map(({ bytes }) => bytes);
}

test("a layer of a disk is freed with the last snapshot that has it", async () => {
  const kept = await snapshot("kept", [BASE]);
  const one = await snapshot("one", [BASE, TOP], kept);
  const two = await snapshot("two", [BASE, TOP], one);
  const plain = MEMORY_BYTES + STATE_BYTES;
  const layer = (await stat(kept.layers[0]?.path ?? "")).blocks * 512;
  assert.ok(layer >= 100_000);
  assert.deepEqual(await garbage([one]), [plain]);
  assert.deepEqual(await garbage([one, two]), [plain, plain + layer]);
  assert.deepEqual(await garbage([two, one, kept]), [plain, plain + layer, plain + layer]);
});

test("a delta file is freed with the last branch that has it", async () => {
  const branch = async (tag: string, earlier: string[]): Promise<Snapshot> => {
    await mkdir(join(dir, tag));
    const deltas = [...earlier.keys(), "own"].map((name) => join(dir, tag, String(name)));
    for (const [at, path] of deltas.entries()) {
      const same = earlier[at];
      if (same === undefined) await writeFile(path, Buffer.alloc(100_000, 1));
      else await link(same, path);
    }
    const manifest = { tag, memory: { kind: "delta", bytes: 100_000 }, deviceStateBytes: STATE_BYTES };
    return { manifest, layers: [], deltas } as unknown as Snapshot;
  };
  const one = await branch("one", []);
  const two = await branch("two", one.deltas);
  const own = (await stat(one.deltas[0] ?? "")).blocks * 512;
  assert.deepEqual(await garbage([one]), [STATE_BYTES]);
  assert.deepEqual(await garbage([two]), [STATE_BYTES + own]);
  assert.deepEqual(await garbage([one, two]), [STATE_BYTES, STATE_BYTES + 2 * own]);
});

test("a damaged snapshot without its layers can be collected", async () => {
  const damaged = await snapshot("damaged", [BASE, TOP]);
  await rm(damaged.layers[1]?.path ?? "");
  assert.equal((await garbage([damaged])).length, 1);
});

test("an image from a pack is removed with its last snapshot, and never during a creation", async () => {
  const image = (id: string, names: string[]): object => ({ id, names, manifest: { rootfs: { bytes: 7 } } });
  const images = [image("sha256:named", ["a"]), image("sha256:needed", []), image("sha256:free", [])];
  const snapshots = [{ manifest: { id: "sn-1", imageId: "sha256:needed" } }];
  const free = { kind: "image", name: "sha256:free", bytes: 7 };
  assert.deepEqual(await removedWith([], { images, snapshots }), [free]);
  assert.deepEqual(await removedWith([], { images, snapshots, writing: [{}] }), []);
});

test("compressed data of packs is counted", async () => {
  const blobs = join(dir, "cache", "packs", "blobs");
  await mkdir(blobs, { recursive: true });
  await writeFile(join(blobs, "0".repeat(64)), Buffer.alloc(10_000, 1));
  const [one, ...others] = await removedWith([]);
  assert.deepEqual([one?.kind, one?.name, others], ["pack", `sha256:${"0".repeat(64)}`, []]);
  assert.ok((one?.bytes ?? 0) >= 10_000);
});
