// Delta files that branches of one source share.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { deltasIn, linkEarlier, sharedSizes } from "../../src/snapshot/deltas.ts";
import type { SnapshotManifest } from "../../src/snapshot/manifest.ts";

const PAGE = 4096;
type Delta = Extract<SnapshotManifest["memory"], { kind: "delta" }>;

const source = { id: "sn-source" } as SnapshotManifest;

function branch(memory: Partial<Delta>): SnapshotManifest {
  return { id: "sn-branch", memory: { kind: "delta", base: source.id, pages: 10, bytes: 11 * PAGE, ...memory } } as SnapshotManifest;
}

/**
 * The deltas of `count` branches of a source with `pages` private pages, of which `changed` differ between two branches
 */
function branches(count: number, pages: number, changed: number): Delta[] {
  const all: Delta[] = [];
  let previous: SnapshotManifest | undefined;
  for (let at = 0; at < count; at++) {
    const earlier = previous && sharedSizes(previous, source);
    previous = branch({ pages, bytes: (1 + (earlier ? changed : pages)) * PAGE, earlier });
    all.push(previous.memory as Delta);
  }
  return all;
}

const total = ({ bytes, earlier = [] }: Delta): number => earlier.reduce((sum, size) => sum + size, bytes);

test("a branch shares the files of the previous one of the same source", () => {
  assert.deepEqual(sharedSizes(branch({}), source), [11 * PAGE]);
  assert.deepEqual(sharedSizes(branch({ pages: 20, bytes: 3 * PAGE, earlier: [20 * PAGE] }), source), [20 * PAGE, 3 * PAGE]);
  assert.equal(sharedSizes(branch({ base: "sn-other" }), source), undefined);
  assert.equal(sharedSizes({ ...branch({}), memory: { kind: "base", bytes: PAGE } }, source), undefined);
});

test("a hundred branches of a source do not make later ones larger or add files", () => {
  for (const [pages, changed] of [
    [150_000, 15_000],
    [150_000, 0],
    [1000, 900],
    [1000, 1000],
    [0, 0],
  ] as const) {
    const all = branches(100, pages, changed);
    const full = (pages + 1) * PAGE;
    for (const memory of all) {
      assert.ok((memory.earlier?.length ?? 0) < 16, "files");
      assert.ok(total(memory) <= 4 * full + 16 * PAGE, `${total(memory)} bytes for ${pages} pages`);
    }
    const [first, ...later] = all;
    assert.equal(first?.bytes, full);
    assert.equal(all[3]?.bytes, (1 + changed) * PAGE, "the fourth has what changed since the third");
    const stored = later.reduce((sum, { bytes }) => sum + bytes, 0);
    const most = 99 * (changed + 1) * PAGE + 50 * full;
    assert.ok(stored <= most, `${stored} bytes in all`);
  }
  const typical = branches(100, 150_000, 15_000).reduce((sum, { bytes }) => sum + bytes, 0);
  assert.ok(typical < 0.2 * 100 * 150_000 * PAGE, `${typical} bytes of ${100 * 150_000 * PAGE}`);
});

test("files are linked in their order, and all or none", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-deltas-"));
  try {
    const [one, two, three] = [join(dir, "one"), join(dir, "two"), join(dir, "three")];
    for (const folder of [one, two, three]) await mkdir(folder);
    const first = deltasIn(one, branch({}));
    assert.deepEqual(first, [join(one, "memory.delta")]);
    await writeFile(first[0] ?? "", "first");
    assert.deepEqual(await linkEarlier(first, two), [join(two, "memory-1.delta")]);
    await writeFile(join(two, "memory.delta"), "second");
    const second = deltasIn(two, branch({ earlier: [5] }));
    assert.deepEqual(await Promise.all(second.map(async (path) => readFile(path, "utf8"))), ["first", "second"]);

    // the first snapshot is removed, its file stays
    await rm(one, { recursive: true });
    assert.equal((await stat(second[0] ?? "")).nlink, 1);
    await rm(join(two, "memory.delta"));
    assert.equal(await linkEarlier(second, three), undefined);
    assert.deepEqual(await readdir(three), []);
  } finally {
    await rm(dir, { recursive: true });
  }
});
