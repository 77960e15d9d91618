// Invalid packs: each is refused with its own error code and leaves no files.

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { zstdCompressSync } from "node:zlib";
import { encodeHeader, endOfTar, rootHeader } from "../../src/archive/tar-write.ts";
import { digestOf } from "../../src/util/digest.ts";
import { packBytes } from "../../src/pack/container.ts";
import { canonicalJson, type PackManifest } from "../../src/pack/manifest.ts";
import { encodeHeader as pagesHeader, RUN, RUN_BYTES, writeRun, type Run } from "../../src/pack/page-format.ts";
import { preparePack, type Pack } from "../../src/pack/prepare.ts";
import { FakeHome, PAGE, pieces } from "./fake.ts";
import type { ReceiveOptions } from "../../src/pack/receive.ts";

const MIB = 1024 * 1024;
let from: FakeHome;
let to: FakeHome;
let good: Buffer;
let empty: string[];

before(async () => {
  from = await FakeHome.make();
  to = await FakeHome.make();
  const base = await from.base("base", { disk: true });
  await from.branch("head", base);
  good = await from.pack("head");
  empty = await to.left();
});

after(async () => {
  await from[Symbol.asyncDispose]();
  await to[Symbol.asyncDispose]();
});

async function refused(
  bytes: Buffer | AsyncIterable<Buffer>,
  code: string,
  message: RegExp,
  opts: Partial<ReceiveOptions> = {},
): Promise<void> {
  await assert.rejects(to.unpack(bytes, opts), { code, message });
  assert.deepEqual(await to.left(), empty, "something is left");
}

/** A pack with a changed manifest and a correct checksum */
async function changed(change: (manifest: PackManifest, pack: Pack) => unknown): Promise<Buffer> {
  await using pack = await preparePack(from.stores, "head");
  const manifest = structuredClone(pack.manifest);
  await change(manifest, pack);
  return Buffer.concat(await Array.fromAsync(packBytes({ ...pack, manifest, manifestBytes: canonicalJson(manifest) })));
}

/** A pack with the content of one blob replaced */
async function withBlob(kind: string, packed: Buffer, contentSize: number | null, content?: Buffer): Promise<Buffer> {
  return changed(async (manifest, pack) => {
    const blob = manifest.blobs.find((one) => one.kind === kind);
    const sent = pack.blobs.find(({ digest }) => digest === blob?.digest);
    assert.ok(blob && sent);
    const before = blob.contentDigest;
    Object.assign(blob, { digest: digestOf(packed), size: packed.length });
    if (contentSize !== null) blob.contentSize = contentSize;
    if (content) blob.contentDigest = digestOf(content);
    for (const link of manifest.links) if (link.memory.content === before) link.memory.content = blob.contentDigest;
    sent.path = join(from.dir, `blob-${kind}`);
    Object.assign(sent, { digest: blob.digest, size: blob.size });
    await writeFile(sent.path, packed);
  });
}

function entry(fields: Parameters<typeof rootHeader>[0]): Buffer {
  return Buffer.concat([encodeHeader(rootHeader(fields)), endOfTar()]);
}

const HEX = "0".repeat(64);

test("entries that do not belong in a pack", async () => {
  await refused(entry({ path: "../../etc/passwd", type: "file", mode: 0o644 }), "PACK_INVALID", /entry named "\.\.\/\.\.\/etc\/passwd"/);
  await refused(entry({ path: "/etc/passwd", type: "file", mode: 0o644 }), "PACK_INVALID", /"\/etc\/passwd"/);
  await refused(entry({ path: `blobs/sha256/../${HEX}`, type: "file", mode: 0o644 }), "PACK_INVALID", /entry named/);
  const path = `blobs/sha256/${HEX}`;
  await refused(entry({ path, type: "symlink", mode: 0o777, linkname: "/etc/passwd" }), "PACK_INVALID", /a symbolic link/);
  await refused(entry({ path, type: "hardlink", mode: 0o644, linkname: "x" }), "PACK_INVALID", /a hard link/);
  await refused(entry({ path, type: "char", mode: 0o644, major: 1, minor: 3 }), "PACK_INVALID", /a device/);
  await refused(entry({ path, type: "dir", mode: 0o755 }), "PACK_INVALID", /a folder/);
  await refused(entry({ path: `manifest/sha256/${HEX}`, type: "file", mode: 0o4755 }), "PACK_INVALID", /entry named/);
  await refused(entry({ path, type: "file", mode: 0o644 }), "PACK_INVALID", /first entry/);
});

test("files that are not packs", async () => {
  await refused(Buffer.alloc(0), "PACK_CORRUPT", /too early/);
  await refused(Buffer.alloc(10_000, "x"), "PACK_INVALID", /entry/);
  await refused(endOfTar(), "PACK_INVALID", /first entry/);
});

test("a truncated pack, and one with bytes after its end", async () => {
  for (const length of [100, 600, 5000, good.length - 1, good.length - 512, good.length - 1024])
    await refused(good.subarray(0, length), "PACK_CORRUPT", /too early/);
  await refused(Buffer.concat([good, Buffer.from("x")]), "PACK_INVALID", /follows its end/);
});

test("a wrong checksum or size", async () => {
  await refused(await changed(({ blobs }) => void (blobs[0]!.size += 1)), "PACK_INVALID", /not in its manifest/);
  await refused(await changed(({ blobs }) => void (blobs[0]!.contentSize += 1)), "PACK_CORRUPT", /bytes instead of/);
  const other = zstdCompressSync(Buffer.alloc(9000, "other"));
  await refused(await withBlob("state", other, null), "PACK_CORRUPT", /instead of sha256/);
  await refused(await withBlob("state", Buffer.from("no zstd at all"), null), "PACK_CORRUPT", /cannot be decompressed/);
  const cut = zstdCompressSync(Buffer.alloc(9000, "other")).subarray(0, 20);
  await refused(await withBlob("state", cut, null), "PACK_CORRUPT", /cannot be decompressed|bytes instead/);
});

test("a stream that exceeds its stated size is stopped", async () => {
  const bomb = zstdCompressSync(Buffer.alloc(64 * MIB));
  let most = 0;
  const progress = ({ done = 0 }): void => void (most = Math.max(most, done));
  await refused(await withBlob("state", bomb, null), "PACK_CORRUPT", /more than the 9000 bytes/, { progress });
  assert.ok(most < 4 * MIB, `${most} bytes were unpacked`);
});

test("a compression window above the limit", async () => {
  const { constants } = await import("node:zlib");
  const wide = zstdCompressSync(Buffer.alloc(40 * MIB, "x"), { params: { [constants.ZSTD_c_windowLog]: 25 } });
  await refused(await withBlob("state", wide, null), "PACK_CORRUPT", /cannot be decompressed/);
});

/** A pages blob from runs, with the content of the runs that have one */
function pages(runs: (Run & { data?: Buffer })[], bytes = 4 * MIB): Buffer {
  return Buffer.concat([
    pagesHeader(bytes),
    ...runs.flatMap(({ data, ...run }) => {
      const record = Buffer.alloc(RUN_BYTES);
      writeRun(run, record, 0);
      return data ? [record, data] : [record];
    }),
  ]);
}

const END = { kind: RUN.end, count: 0, first: 0, source: 0 };
const page = { kind: RUN.data, count: 1, first: 1, source: 0, data: Buffer.alloc(PAGE, "a") };

test("pages that exceed their count, are beyond the end, out of order, or from a missing source", async () => {
  const cases: [Buffer, RegExp][] = [
    [pages([page, { kind: RUN.copy, count: 200, first: 300, source: 1 }, END]), /more than the 10 pages/],
    [pages([page, END]), /1 pages instead of 10/],
    [pages([{ ...page, first: 1024 }, END]), /behind the end/],
    [pages([{ ...page, first: 2 ** 40 }, END]), /behind the end/],
    [pages([page, page, END]), /out of order/],
    [pages([{ kind: RUN.copy, count: 1, first: 5, source: 5 }, END]), /not before/],
    [pages([{ kind: RUN.zero, count: 1, first: 5, source: 0 }, END]), /zero pages/],
    [pages([{ kind: 9 as never, count: 1, first: 5, source: 0 }, END]), /unknown kind 9/],
    [pages([{ ...page, count: 0 }, END]), /run of 0 pages/],
    [pages([{ ...page, count: 5000 }, END]), /run of 5000 pages/],
    [pages([END], 8 * MIB), /not for 4194304 bytes/],
    [Buffer.alloc(100, "x"), /does not begin/],
    [
      Buffer.concat([pages([...Array.from({ length: 10 }, (_, at) => ({ ...page, first: at })), END]), Buffer.from("x")]),
      /follows the end/,
    ],
  ];
  for (const [content, message] of cases)
    await refused(await withBlob("memory", zstdCompressSync(content), content.length, content), "PACK_INVALID", message);
});

test("unknown versions and formats", async () => {
  await refused(await changed((manifest) => Object.assign(manifest, { version: 2 })), "PACK_VERSION", /version 2/);
  await refused(await changed((manifest) => Object.assign(manifest, { format: "x" })), "PACK_INVALID", /not one of a forkd pack/);
  await refused(await changed((manifest) => Object.assign(manifest, { more: 1 })), "PACK_INVALID", /not valid/);
  await refused(await changed((manifest) => Object.assign(manifest, { links: [] })), "PACK_INVALID", /not valid/);
  const loose = await (async () => {
    await using pack = await preparePack(from.stores, "head");
    const manifestBytes = Buffer.from(JSON.stringify(pack.manifest, null, 1));
    return Buffer.concat(await Array.fromAsync(packBytes({ ...pack, manifestBytes })));
  })();
  await refused(loose, "PACK_INVALID", /canonical/);
});

test("chains with cycles, missing snapshots, or different machines", async () => {
  await refused(await changed(({ links: [base, head] }) => Object.assign(head!, { id: base!.id })), "PACK_INVALID", /cycle/);
  await refused(
    await changed(({ links: [, head] }) => Object.assign(head!.memory, { base: head!.id })),
    "PACK_INVALID",
    /builds on itself/,
  );
  await refused(await changed(({ links }) => void links.shift()), "PACK_INVALID", /missing/);
  await refused(
    await changed(({ links: [, head] }) => Object.assign(head!.memory, { base: "sn-aaaaaaaaaaaaaaaa" })),
    "PACK_INVALID",
    /missing/,
  );
  await refused(await changed(({ links: [base] }) => void (base!.depth = 7)), "PACK_INVALID", /depth/);
  await refused(await changed(({ links: [base] }) => void (base!.shape.memoryMiB = 8)), "PACK_INVALID", /machine/);
  await refused(await changed((manifest) => void (manifest.head = manifest.links[0]!.id)), "PACK_INVALID", /head/);
  await refused(await changed((manifest) => void (manifest.image.id = `sha256:${HEX}`)), "PACK_INVALID", /id of its image/);
});

test("a disk layer that forkd did not write", async () => {
  const overlay = pages([{ kind: RUN.data, count: 1, first: 0, source: 0, data: Buffer.alloc(PAGE, "QFI") }, END], 262_144);
  const bytes = await changed(async (manifest, pack) => {
    const link = manifest.links[1]!;
    const layer = link.disk!.layers[1]!;
    const blob = manifest.blobs.find(({ contentDigest }) => contentDigest === layer.content)!;
    const sent = pack.blobs.find(({ digest }) => digest === blob.digest)!;
    const packed = zstdCompressSync(overlay);
    Object.assign(blob, { contentDigest: digestOf(overlay), contentSize: overlay.length, digest: digestOf(packed), size: packed.length });
    Object.assign(layer, { content: blob.contentDigest, bytes: 262_144, pages: 1 });
    Object.assign(sent, { path: join(from.dir, "overlay"), digest: blob.digest, size: blob.size });
    await writeFile(sent.path, packed);
  });
  await refused(bytes, "SNAPSHOT_INVALID", /not one that forkd writes/);
});

test("a pack that is too large for the disk is refused before it is read", async () => {
  await refused(good, "NO_SPACE", /it needs \d+ bytes/, { minFreeBytes: 2 ** 52 });
});

test("a client that disconnects in the middle", async () => {
  const controller = new AbortController();
  async function* leaving(): AsyncGenerator<Buffer> {
    yield* pieces(good.subarray(0, good.length / 2));
    controller.abort();
    yield* pieces(good.subarray(good.length / 2));
  }
  await assert.rejects(to.unpack(leaving(), { signal: controller.signal }), { name: "AbortError" });
  assert.deepEqual(await to.left(), empty);
});

test("one hundred packs with one byte changed each: one hundred refusals", async () => {
  for (let at = 0; at < 100; at++) {
    // evenly spaced, to cover every part of the file
    const place = Math.floor(((at + 0.5) / 100) * good.length);
    const bad = Buffer.from(good);
    bad[place] = bad[place]! ^ (1 << (at % 8));
    await assert.rejects(
      to.unpack(bad),
      { name: "ForkdError", code: /^PACK_(INVALID|CORRUPT|VERSION)$/ },
      `byte ${place} of ${good.length}`,
    );
  }
  assert.deepEqual(await to.left(), empty);
  await to.unpack(good);
});
