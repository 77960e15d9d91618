import assert from "node:assert/strict";
import { mkdir, readdir, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { TestContext } from "node:test";
import type { Home } from "../../src/home.ts";
import { DEFAULT_CONFIG } from "../../src/image/manifest.ts";
import { sweepStaging, withStaging } from "../../src/host/staging.ts";
import { ImageStore } from "../../src/image/store.ts";
import type { StoredImage } from "../../src/image/store.ts";
import { recordSyncs } from "../util/record-syncs.ts";
import { leftovers, tempHome } from "./helpers/temp-home.ts";

const SOURCE = { kind: "import" as const, file: "x.tar", format: "rootfs" as const };

async function add(home: Home, name: string, content: string, env: Record<string, string> = {}): Promise<StoredImage> {
  return withStaging(home, async (dir) => {
    const path = join(dir, "rootfs.squashfs");
    await writeFile(path, content);
    return new ImageStore(home).add({ rootfsTmpPath: path, name, config: { ...DEFAULT_CONFIG, env }, source: SOURCE });
  });
}

async function setup(t: TestContext): Promise<{ home: Home; store: ImageStore }> {
  const home = await tempHome(t);
  return { home, store: new ImageStore(home) };
}

test("an image is found by name, id and prefix of its id", async (t) => {
  const { home, store } = await setup(t);
  const image = await add(home, "one", "root");
  assert.equal((await store.get("one")).id, image.id);
  assert.equal((await store.get(image.id)).id, image.id);
  assert.equal((await store.get(image.id.slice(7, 15))).id, image.id);
  assert.equal((await store.find("two")) === undefined, true);
  await assert.rejects(store.get("two"), { code: "NOT_FOUND" });
  await assert.rejects(store.find("../x"), { code: "BAD_NAME" });
  assert.deepEqual(await readdir(home.staging), []);
});

test("equal content is stored once, and a different configuration makes another image", async (t) => {
  const { home, store } = await setup(t);
  const one = await add(home, "one", "root");
  const same = await add(home, "same", "root");
  const other = await add(home, "other", "root", { A: "1" });
  assert.equal(one.id, same.id);
  assert.notEqual(one.id, other.id);
  assert.deepEqual(
    (await store.list()).map((image) => image.names),
    [["one", "same"], ["other"]],
  );
});

test("an image is on disk before it is moved into its place, and its name after that", async (t) => {
  const { home, store } = await setup(t);
  const syncs = await recordSyncs(t, home.root);
  const { id } = await add(home, "one", "root");
  const at = (pattern: RegExp): number => syncs.findIndex((path) => pattern.test(path));
  const order = [/^staging\/.*\/out\/rootfs\.squashfs$/, /^staging\/.*\/out$/, /^images$/, /^images\/names\/one\./, /^images\/names$/].map(
    at,
  );
  assert.ok(at(/^staging\/.*\/out\/manifest\.json$/) >= 0);
  assert.deepEqual([order.includes(-1), order], [false, order.toSorted((a, b) => a - b)], syncs.join(" "));
  syncs.length = 0;
  await store.remove(id);
  assert.deepEqual(syncs, ["images/names", "images"]);
});

test("the data is removed with the last name", async (t) => {
  const { home, store } = await setup(t);
  const image = await add(home, "one", "root");
  await add(home, "two", "root");
  assert.deepEqual(await store.remove("one"), { id: image.id, untagged: ["one"], deleted: false });
  assert.deepEqual(await store.remove("two"), { id: image.id, untagged: ["two"], deleted: true });
  assert.deepEqual(await leftovers(home), []);
});

test("an image in use keeps its last name", async (t) => {
  const { home, store } = await setup(t);
  const image = await add(home, "one", "root");
  await assert.rejects(store.remove("one", { inUse: (id) => id === image.id }), { code: "IN_USE" });
  await assert.rejects(store.remove(image.id, { inUse: async () => true }), { code: "IN_USE" });
  assert.equal((await store.get("one")).id, image.id);
});

test("a moved name leaves its old image without one", async (t) => {
  const { home, store } = await setup(t);
  const old = await add(home, "one", "old");
  const next = await add(home, "one", "new");
  assert.equal((await store.get("one")).id, next.id);
  assert.deepEqual((await store.get(old.id)).names, []);
});

test("damaged images are reported, not used", async (t) => {
  const { home, store } = await setup(t);
  const image = await add(home, "one", "root");
  await truncate(image.rootfsPath, 2);
  await assert.rejects(store.get("one"), { code: "IMAGE_INVALID" });
  const other = await add(home, "two", "other");
  await writeFile(join(home.images, other.id.slice(7), "manifest.json"), "{}");
  await assert.rejects(store.get("two"), { code: "IMAGE_INVALID" });
  const heard: string[] = [];
  assert.deepEqual(await store.list({ onInvalid: (error) => heard.push(error.code) }), []);
  assert.deepEqual(heard, ["IMAGE_INVALID", "IMAGE_INVALID"]);
  assert.equal((await add(home, "one", "root")).id, image.id);
  assert.equal((await store.get("one")).id, image.id);
});

test("staging folders of dead owners are swept, those of living ones are not", async (t) => {
  const { home } = await setup(t);
  // the same pid, of a process that started at another time; and a folder without an owner
  await mkdir(join(home.staging, `${process.pid}-1-0123456789abcdef`));
  await mkdir(join(home.staging, "nobody's"));
  await withStaging(home, async () => {
    assert.equal(await sweepStaging(home), 2);
    assert.equal((await readdir(home.staging)).length, 1);
  });
  assert.deepEqual(await readdir(home.staging), []);
});
