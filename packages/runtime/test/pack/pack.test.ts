// Packs of small snapshots: packing and unpacking.

import assert from "node:assert/strict";
import { open, readFile, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { PackCache, packCacheDir } from "../../src/pack/cache.ts";
import { readDelta } from "../../src/pack/delta-file.ts";
import { MANIFEST_MEDIA_TYPE, MEDIA_TYPES } from "../../src/pack/manifest.ts";
import { preparePack } from "../../src/pack/prepare.ts";
import { packSize } from "../../src/pack/container.ts";
import { sha256File } from "../../src/util/hash-file.ts";
import { FakeHome, PAGE } from "./fake.ts";

test("a snapshot is unchanged after packing and unpacking, and so is its pack", async () => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  const made = await a.base("warm", { disk: true });
  const bytes = await a.pack("warm");
  assert.ok(bytes.equals(await a.pack("warm")), "packed twice");
  const { tag, snapshots, head } = await b.unpack(bytes, { tag: "other" });
  assert.equal(tag, "other");
  assert.deepEqual(snapshots, [made.manifest.id]);
  assert.ok((await readFile(head.memory)).equals(await readFile(made.memory)), "memory");
  assert.ok((await readFile(head.deviceState)).equals(await readFile(made.deviceState)), "device state");
  assert.ok((await readFile(head.layers[0]?.path ?? "")).equals(await readFile(made.layers[0]?.path ?? "")), "disk");
  assert.deepEqual(
    { ...head.manifest, tag: "", name: undefined, memory: null },
    { ...made.manifest, tag: "", name: undefined, memory: null },
  );
  const [from, to] = [await a.stores.images.get(made.manifest.imageId), await b.stores.images.get(made.manifest.imageId)];
  assert.ok((await readFile(from.rootfsPath)).equals(await readFile(to.rootfsPath)), "image");
  assert.ok(bytes.equals(await b.pack("other")), "packed again by the receiver, under another name");
  await new PackCache(b.stores.home).trim(0);
  assert.ok(bytes.equals(await b.pack("other")), "and without a cache");
});

test("huge pages are not in a pack: the host that unpacks it may have none", async () => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  const { dir, manifest } = await a.base("warm");
  await writeFile(join(dir, "manifest.json"), JSON.stringify({ ...manifest, shape: { ...manifest.shape, hugepages: true } }));
  assert.equal((await a.stores.snapshots.get("warm")).manifest.shape.hugepages, true);
  const { head } = await b.unpack(await a.pack("warm"));
  assert.deepEqual(head.manifest.shape, manifest.shape);
});

test("a memory of many segments is unchanged after packing and unpacking", async () => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  const made = await a.base("warm", { memoryMiB: 48, fillMiB: 44 });
  const { head } = await b.unpack(await a.pack("warm", { level: 1 }));
  assert.equal(await digestOf(head.memory), await digestOf(made.memory));
});

test("the documented media types are those that are sent", async () => {
  const spec = await readFile(join(import.meta.dirname, "../../../../spec/pack.md"), "utf8");
  for (const type of [MANIFEST_MEDIA_TYPE, ...Object.values(MEDIA_TYPES)]) assert.ok(spec.includes(`\`${type}\``), type);
});

test("zero pages are in no file and no pack, and a repeated page is in the pack once", async () => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  await a.base("warm");
  await using pack = await preparePack(a.stores, "warm");
  const [memory] = pack.manifest.blobs;
  assert.equal(memory?.kind, "memory");
  const runs = 9; // 1, 3-5, 9-10, 300-301 (its own block), 600, 700, end
  assert.ok(memory.contentSize < 7 * PAGE + 16 + 24 * runs, String(memory.contentSize));
  assert.equal(pack.manifest.links[0]?.memory.pages, 10);
  const { head } = await b.unpack(await a.pack("warm"));
  assert.ok((await stat(head.memory)).blocks * 512 <= 16 * PAGE);
});

test("a chain is packed completely, or without the parts that the receiver has", async () => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  await using c = await FakeHome.make();
  const base = await a.base("base", { disk: true });
  const middle = await a.branch("middle", base);
  const head = await a.branch("head", middle);
  const whole = await a.pack("head");
  const got = await b.unpack(whole);
  assert.deepEqual(got.snapshots, [base.manifest.id, middle.manifest.id, head.manifest.id]);
  assert.deepEqual([...(await b.stores.snapshots.tags()).keys()], ["head"]);
  for (const made of [base, middle, head]) {
    const copy = await b.stores.snapshots.byId(made.manifest.id);
    for (const { path, id } of made.layers) {
      const other = copy.layers.find((layer) => layer.id === id)?.path ?? "";
      assert.ok((await readFile(other)).equals(await readFile(path)));
    }
  }
  const links = await Promise.all(got.head.layers.map(async ({ path }) => (await stat(path)).nlink));
  assert.deepEqual(links, [3, 2, 1], "layers are shared");
  assert.ok((await b.pack("head")).equals(whole));

  await c.unpack(await a.pack("base"));
  const delta = await a.pack("head", { without: new Set([base.manifest.id]) });
  assert.ok(delta.length < whole.length - 8 * PAGE);
  const { snapshots } = await c.unpack(delta);
  assert.deepEqual(snapshots, [middle.manifest.id, head.manifest.id]);
  assert.ok((await c.pack("head")).equals(whole));
  // a pack may contain snapshots that the store already has
  await using d = await FakeHome.make();
  await d.unpack(await a.pack("middle"));
  assert.deepEqual((await d.unpack(whole)).snapshots, [head.manifest.id]);
  await using e = await FakeHome.make();
  const before = await e.left();
  await assert.rejects(e.unpack(delta), { code: "PACK_INCOMPLETE" });
  assert.deepEqual(await e.left(), before);
});

test("a branch with several delta files is packed as one delta, without replaced pages", async () => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  const base = await a.base("base");
  const first = await a.branch("first", base);
  const second = await a.laterBranch("second", first);
  const third = await a.laterBranch("third", second);
  assert.equal(third.deltas.length, 3);
  const packed = await a.pack("third");
  const { head, snapshots } = await b.unpack(packed);
  assert.deepEqual(snapshots, [base.manifest.id, third.manifest.id]);
  assert.deepEqual(head.deltas, [head.memory]);
  const wanted = new Map<number, Buffer>();
  for (const path of third.deltas) for (const [page, bytes] of await pagesOf(path)) wanted.set(page, bytes);
  assert.deepEqual(await pagesOf(head.memory), new Map([...wanted].toSorted(([x], [y]) => x - y)));
  assert.ok((await b.pack("third")).equals(packed), "packed again by the receiver");
});

async function pagesOf(path: string): Promise<Map<number, Buffer>> {
  await using file = await open(path, "r");
  const { extents } = await readDelta(file, path);
  const bytes = await readFile(path);
  const pages = new Map<number, Buffer>();
  for (const { first, count, offset } of extents)
    for (let at = 0; at < count; at++) pages.set(first + at, bytes.subarray(offset + at * PAGE, offset + (at + 1) * PAGE));
  return pages;
}

test("existing parts are reused, not created twice", async () => {
  await using a = await FakeHome.make();
  const made = await a.base("warm");
  const bytes = await a.pack("warm");
  const again = await a.unpack(bytes);
  assert.deepEqual([again.tag, again.snapshots], ["warm", []]);
  await assert.rejects(a.unpack(bytes, { tag: "other" }), { code: "EXISTS", message: /as warm/ });
  await using b = await FakeHome.make();
  const other = await b.base("warm");
  await assert.rejects(b.unpack(bytes), { code: "EXISTS" });
  const forced = await b.unpack(bytes, { force: true });
  assert.equal(forced.replaced, other.manifest.id);
  assert.equal((await b.stores.snapshots.get("warm")).manifest.id, made.manifest.id);
});

test("of two concurrent unpacks one creates the snapshot, and the other leaves nothing", async () => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  await using alone = await FakeHome.make();
  const bytes = await a.pack((await a.base("warm", { disk: true })).manifest.tag);
  await alone.unpack(bytes, { tag: "one" });
  const both = await Promise.allSettled([b.unpack(bytes, { tag: "one" }), b.unpack(bytes, { tag: "two" })]);
  const refused = both.filter((outcome) => outcome.status === "rejected");
  assert.deepEqual(
    refused.map(({ reason }) => (reason as { code: string }).code),
    ["EXISTS"],
  );
  const names = (paths: string[]): string[] => paths.map((path) => path.replace(/tags\/(one|two)$/, "tags/one"));
  assert.deepEqual(names(await b.left()), await alone.left());
});

test("a pack's size is known before it is sent", async () => {
  await using a = await FakeHome.make();
  await a.base("warm");
  await using pack = await preparePack(a.stores, "warm");
  assert.equal(packSize(pack), (await a.pack("warm")).length);
});

test("cancelled packing leaves nothing", async () => {
  await using a = await FakeHome.make();
  await a.base("warm");
  const before = await a.left();
  await assert.rejects(a.pack("warm", { signal: AbortSignal.abort() }), { name: "AbortError" });
  assert.deepEqual(await a.left(), before);
  assert.deepEqual(await readdir(join(packCacheDir(a.stores.home), "blobs")), []);
});

async function digestOf(path: string): Promise<string> {
  return (await sha256File(path)).hex;
}
