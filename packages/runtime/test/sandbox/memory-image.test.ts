import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { deltasAbove, recordedImage, recordImage } from "../../src/sandbox/memory-image.ts";

import type { Snapshot } from "../../src/snapshot/store.ts";

/** A line of snapshots, lowest first, each with its delta files */
function line(...deltas: string[][]): { all: Snapshot[]; byId: (id: string) => Promise<Snapshot> } {
  const all = deltas.map((files, depth) => {
    const memory = depth === 0 ? { kind: "base", bytes: 1 } : { kind: "delta", base: `sn-${depth - 1}`, pages: 1, bytes: 1 };
    return { manifest: { id: `sn-${depth}`, tag: `tag-${depth}`, depth, memory }, deltas: files } as object as Snapshot;
  });
  return { all, byId: async (id) => all[Number(id.slice(3))]! };
}

test("the deltas between an image and a snapshot are those of each snapshot above it, oldest first", async () => {
  const { all, byId } = line([], ["a1", "a2"], ["b1"], ["c1", "c2"]);
  const top = all[3]!;
  assert.deepEqual(await deltasAbove({ byId }, top, "sn-3"), []);
  assert.deepEqual(await deltasAbove({ byId }, top, "sn-2"), ["c1", "c2"]);
  assert.deepEqual(await deltasAbove({ byId }, top, "sn-0"), ["a1", "a2", "b1", "c1", "c2"]);
});

test("a snapshot that does not build on the image is refused, also if its chain has a loop", async () => {
  const { all, byId } = line([], ["a"]);
  await assert.rejects(deltasAbove({ byId }, all[1]!, "sn-9"), { code: "SNAPSHOT_INVALID" });
  await assert.rejects(deltasAbove({ byId: async () => all[1]! }, all[1]!, "sn-0"), { code: "SNAPSHOT_INVALID" });
});

test("the image that a VM maps is recorded in its folder", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-image-"));
  try {
    assert.equal(await recordedImage(dir), undefined);
    await recordImage(dir, "sn-1");
    assert.equal(await recordedImage(dir), "sn-1");
    await assert.rejects(recordImage(dir, "sn-2"), { code: "EEXIST" });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
