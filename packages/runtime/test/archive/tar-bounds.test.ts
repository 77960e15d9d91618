// Bounds on the memory that a small archive can make the daemon use.

import assert from "node:assert/strict";
import { join } from "node:path";
import { Readable } from "node:stream";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { run } from "../../src/host/command.ts";
import { flattenLayers, type FlattenOpts } from "../../src/image/layers.ts";
import { readTar, type TarHeader } from "../../src/archive/tar-read.ts";
import { catSquashfs, listSquashfs } from "../image/helpers/squashfs.ts";
import { extended, tarOf, type Item } from "../image/helpers/tar.ts";
import { tempDir } from "../image/helpers/temp-home.ts";

async function headersOf(tar: Buffer): Promise<TarHeader[]> {
  const headers: TarHeader[] = [];
  for await (const { header } of readTar(Readable.from([tar]), "x")) headers.push(header);
  return headers;
}

async function flatten(dir: string, items: readonly Item[], opts: Partial<FlattenOpts> = {}): Promise<string> {
  const rootfs = join(dir, "rootfs.squashfs");
  const tar = tarOf(items);
  await flattenLayers([{ label: "x", open: () => Readable.from([tar]) }], rootfs, { maxBytes: 1e9, whiteouts: false, ...opts });
  return rootfs;
}

test("the link target in the header of a plain file is ignored, whatever its length", async () => {
  const record = extended("x", { linkpath: "l".repeat(100_000) });
  const [file] = await headersOf(Buffer.concat([record, tarOf([{ path: "f" }])]));
  assert.deepEqual([file?.path, file?.linkname], ["f", ""]);
  const link = headersOf(Buffer.concat([record, tarOf([{ path: "s", type: "symlink", link: "x" }])]));
  await assert.rejects(link, { code: "IMAGE_INVALID", message: /"s" has a path or a link longer than 4095/ });
});

test("a global header sets owners and times, and is not copied for each entry", async () => {
  const all = extended("g", { uid: "7", "SCHILY.xattr.user.a": "x".repeat(1000), path: "elsewhere", comment: "c" });
  const more = extended("g", { gid: "8" });
  const headers = await headersOf(Buffer.concat([all, more, tarOf([{ path: "a" }, { path: "b" }])]));
  assert.deepEqual(
    headers.map(({ path, uid, gid, xattrs }) => [path, uid, gid, xattrs.size]),
    [
      ["a", 7, 8, 0],
      ["b", 7, 8, 0],
    ],
  );
});

test("attributes have a limit per entry and per archive", async (t) => {
  const dir = await tempDir(t);
  const withAttributes = (bytes: number, path = "f"): Item => ({ path, xattrs: new Map([["user.a", Buffer.alloc(bytes, "a")]]) });
  await flatten(dir, [withAttributes(60_000)]);
  await assert.rejects(flatten(dir, [withAttributes(70_000)]), { code: "IMAGE_INVALID", message: /"f": its extended attributes/ });
  const many = Array.from({ length: 20 }, (_, at) => withAttributes(60_000, `f${at}`));
  await assert.rejects(flatten(dir, many, { maxTreeBytes: 1_000_000 }), { code: "IMAGE_TOO_LARGE", message: /attributes/ });
});

test("folders that no entry describes are counted", async (t) => {
  const dir = await tempDir(t);
  const deep = (name: string): Item => ({ path: `${name}/`.repeat(1000) });
  await flatten(dir, [deep("a")], { maxEntries: 1500 });
  await assert.rejects(flatten(dir, [deep("a"), deep("b")], { maxEntries: 1500 }), { code: "IMAGE_TOO_LARGE", message: /1500 entries/ });
});

test("links cannot make paths longer than the limit", async (t) => {
  const dir = await tempDir(t);
  const deep = "d/".repeat(1500);
  const items: Item[] = [{ path: deep }, { path: "l", type: "symlink", link: `/${deep}` }];
  const rootfs = await flatten(dir, [...items, { path: "l/f", content: "found" }]);
  assert.equal(await catSquashfs(rootfs, `${deep}f`), "found");
  assert.equal((await listSquashfs(rootfs)).get("/l"), `lrwxrwxrwx 0/0 -> /${deep}`);
  const deeper = flatten(dir, [...items, { path: `l/${"e/".repeat(600)}f` }]);
  await assert.rejects(deeper, { code: "IMAGE_INVALID", message: /longer than 4095 bytes, links followed/ });
});

test("an archive of 100 kB does not fill the daemon's memory", async (t) => {
  // 300 MB of links to a missing file; the heap of this process has room for a third of it
  const long = gzipSync(Buffer.concat([extended("x", { linkpath: "l".repeat(1_000_000) }), tarOf([{ path: "f" }]).subarray(0, 512)]));
  const program = `
    import { Readable } from "node:stream";
    import { gunzipSync } from "node:zlib";
    import { flattenLayers } from ${JSON.stringify(join(import.meta.dirname, "../../src/image/layers.ts"))};
    const one = gunzipSync(Buffer.from(process.argv[1], "base64"));
    const name = (at) => {
      const copy = Buffer.from(one);
      const block = copy.subarray(-512);
      block.write("f" + at, 0);
      block.fill(0x20, 148, 156);
      block.write(block.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, "0") + "\\0 ", 148);
      return copy;
    };
    function* tar() {
      for (let at = 0; at < 300; at++) yield name(at);
      yield Buffer.alloc(1024);
    }
    await flattenLayers([{ label: "x", open: () => Readable.from(tar()) }], process.argv[2], { maxBytes: 1e9, whiteouts: false });
  `;
  const rootfs = join(await tempDir(t), "rootfs.squashfs");
  await run([process.execPath, "--max-old-space-size=100", "--input-type=module", "-e", program, long.toString("base64"), rootfs]);
  assert.equal((await listSquashfs(rootfs)).size, 301);
});
