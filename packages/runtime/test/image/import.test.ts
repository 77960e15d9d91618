import assert from "node:assert/strict";
import { chmod, link, mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { until } from "../../../../tests/helpers/until.ts";
import { run } from "../../src/host/command.ts";
import { importImage } from "../../src/image/import.ts";
import { ImageStore } from "../../src/image/store.ts";
import { makeImage } from "./helpers/oci.ts";
import type { TestImage } from "./helpers/oci.ts";
import { catSquashfs, listSquashfs } from "./helpers/squashfs.ts";
import { patchHeader, tarOf } from "./helpers/tar.ts";
import type { Item } from "./helpers/tar.ts";
import { leftovers, tempDir, tempHome } from "./helpers/temp-home.ts";

const FILES: Item[] = [{ path: "etc/" }, { path: "etc/motd", content: "hello" }];

function image(): TestImage {
  const top = tarOf([{ path: "etc/.wh.motd" }, { path: "etc/new", content: "new" }]);
  const base = tarOf(FILES);
  return makeImage(
    [
      { tar: base, packed: gzipSync(base) },
      { tar: top, packed: top },
    ],
    { config: { Cmd: ["sh"] } },
  );
}

function layoutItems(made: TestImage): Item[] {
  const manifests = [{ mediaType: made.mediaType, digest: made.manifest.digest, size: made.manifest.data.length }];
  const index = JSON.stringify({ schemaVersion: 2, manifests });
  const blobs = [made.manifest, ...made.blobs].map((blob) => ({ path: `blobs/${blob.digest.replace(":", "/")}`, content: blob.data }));
  return [{ path: "oci-layout", content: '{"imageLayoutVersion":"1.0.0"}' }, { path: "index.json", content: index }, ...blobs];
}

async function importBytes(t: TestContext, data: Buffer, name = "x.tar") {
  const home = await tempHome(t);
  const file = join(await tempDir(t), name);
  await writeFile(file, data);
  return { home, done: importImage(home, file, { name: "x" }) };
}

for (const [ending, pack] of [
  ["tar", (data: Buffer) => data],
  ["tar.gz", gzipSync],
  ["tar.zst", zstdCompressSync],
] as const) {
  test(`a root file system as .${ending} is imported`, async (t) => {
    const { done } = await importBytes(t, Buffer.from(pack(tarOf(FILES))), `x.${ending}`);
    const stored = await done;
    assert.equal(await catSquashfs(stored.rootfsPath, "etc/motd"), "hello");
    assert.deepEqual(stored.manifest.source, { kind: "import", file: `x.${ending}`, format: "rootfs" });
  });
}

for (const format of ["gnu", "pax", "ustar"]) {
  test(`archives of GNU tar in ${format} format are imported, packed with xz`, async (t) => {
    const dir = await tempDir(t);
    const root = join(dir, "root");
    const deep = format === "ustar" ? "a/b" : `${"a".repeat(150)}/${"b".repeat(150)}`;
    await mkdir(join(root, deep), { recursive: true });
    await writeFile(join(root, deep, "file"), "deep");
    await link(join(root, deep, "file"), join(root, "hard"));
    await symlink(`/${deep}/file`, join(root, "soft"));
    await writeFile(join(root, ".wh.literal"), "a name like any other");
    await chmod(join(root, "hard"), 0o640);
    const file = join(dir, "rootfs.tar.xz");
    await run(["tar", `--format=${format}`, "--owner=5", "--group=6", "--numeric-owner", "-C", root, "-cJf", file, "."]);
    const stored = await importImage(await tempHome(t), file, { name: "x" });
    const listing = await listSquashfs(stored.rootfsPath);
    assert.equal(listing.get("/hard"), "-rw-r----- 5/6");
    assert.equal(listing.get("/soft"), `lrwxrwxrwx 5/6 -> /${deep}/file`);
    assert.equal(await catSquashfs(stored.rootfsPath, `${deep}/file`), "deep");
    assert.equal(await catSquashfs(stored.rootfsPath, ".wh.literal"), "a name like any other");
  });
}

test("an OCI layout is imported as a folder, a tar and a packed tar", async (t) => {
  const home = await tempHome(t);
  const dir = await tempDir(t);
  const items = layoutItems(image());
  const folder = join(dir, "layout");
  for (const item of items) {
    await mkdir(join(folder, item.path, ".."), { recursive: true });
    await writeFile(join(folder, item.path), item.content ?? "");
  }
  await writeFile(join(dir, "layout.tar"), tarOf(items));
  await writeFile(join(dir, "layout.tgz"), gzipSync(tarOf(items)));
  const ids = new Set<string>();
  for (const name of ["layout", "layout.tar", "layout.tgz"]) {
    const stored = await importImage(home, join(dir, name), { name: "x" });
    assert.deepEqual([...(await listSquashfs(stored.rootfsPath)).keys()].toSorted(), ["/", "/etc", "/etc/new"]);
    assert.deepEqual(stored.manifest.config.cmd, ["sh"]);
    ids.add(stored.id);
    // equal content gives the same image at any time
    const second = Math.floor(Date.now() / 1000);
    if (name === "layout") await until(() => Math.floor(Date.now() / 1000) > second);
  }
  assert.equal(ids.size, 1);
});

test("a docker save archive is imported, with a layer that is a link to another", async (t) => {
  const made = image();
  const [config, base, top] = made.blobs;
  assert.ok(config && base && top);
  const manifest = JSON.stringify([{ Config: "config.json", RepoTags: ["x:1"], Layers: ["a/layer.tar", "b/layer.tar"] }]);
  const data = tarOf([
    { path: "config.json", content: config.data },
    { path: "a/layer.tar", content: base.data },
    { path: "c/layer.tar", content: top.data },
    { path: "b/layer.tar", type: "symlink", link: "../c/layer.tar" },
    { path: "manifest.json", content: manifest },
  ]);
  const { done } = await importBytes(t, gzipSync(data), "saved.tar.gz");
  const stored = await done;
  assert.equal(await catSquashfs(stored.rootfsPath, "etc/new"), "new");
  assert.equal(stored.manifest.source.kind === "import" && stored.manifest.source.format, "docker-archive");
});

test("a folder that is not a layout is refused with advice", async (t) => {
  const dir = await tempDir(t);
  await assert.rejects(
    importImage(await tempHome(t), dir, { name: "x" }),
    (error: Error & { code?: string; hint?: string }) => error.code === "BAD_REQUEST" && /tar /.test(error.hint ?? ""),
  );
});

test("a cancelled import leaves nothing", async (t) => {
  const home = await tempHome(t);
  const file = join(await tempDir(t), "x.tar.gz");
  await writeFile(file, gzipSync(tarOf(Array.from({ length: 200 }, (_, i) => ({ path: `f${i}`, content: Buffer.alloc(200_000, i) })))));
  const stop = new AbortController();
  const progress = ({ step }: { step: string }): void => {
    if (step === "Writing the image") stop.abort();
  };
  await assert.rejects(importImage(home, file, { name: "x", signal: stop.signal, progress }), { code: "CANCELLED" });
  assert.ok(stop.signal.aborted);
  assert.deepEqual(await leftovers(home), []);
});

const zeros = (size: number): Buffer => tarOf([{ path: "zeros", content: Buffer.alloc(size) }]);
const one = tarOf([{ path: "file", content: "x" }]);

const HOSTILE: [string, () => Buffer, string, RegExp][] = [
  ["an absolute path", () => tarOf([{ path: "/etc/passwd", content: "x" }]), "IMAGE_INVALID", /"\/etc\/passwd".*absolute/],
  ["a path that leads upwards", () => tarOf([{ path: "a/../../x", content: "x" }]), "IMAGE_INVALID", /"a\/\.\.\/\.\.\/x".*upwards/],
  ["a path with NUL in a pax header", () => tarOf([{ path: `a\0${"b".repeat(120)}`, content: "x" }]), "IMAGE_INVALID", /NUL/],
  ["a name of 256 bytes", () => tarOf([{ path: "n".repeat(256), content: "x" }]), "IMAGE_INVALID", /longer than 255/],
  ["a path of 5000 bytes", () => tarOf([{ path: "d/".repeat(2500) }]), "IMAGE_INVALID", /longer than 4095/],
  [
    "a hard link to nothing",
    () => tarOf([{ path: "l", type: "hardlink", link: "none" }]),
    "IMAGE_INVALID",
    /"l".*"none".*not in the image/,
  ],
  [
    "a hard link out of the tree",
    () => tarOf([{ path: "l", type: "hardlink", link: "../../etc/shadow" }]),
    "IMAGE_INVALID",
    /"..\/..\/etc\/shadow".*upwards/,
  ],
  ["a hard link to a folder", () => tarOf([{ path: "d/" }, { path: "l", type: "hardlink", link: "d" }]), "IMAGE_INVALID", /folder/],
  ["a hard link to itself", () => tarOf([{ path: "l", type: "hardlink", link: "l" }]), "IMAGE_INVALID", /not in the image/],
  ["a block device", () => tarOf([{ path: "dev/sda", type: "block", major: 8 }]), "IMAGE_INVALID", /"dev\/sda".*device node/],
  ["a character device elsewhere", () => tarOf([{ path: "tmp/null", type: "char", major: 1, minor: 3 }]), "IMAGE_INVALID", /device node/],
  [
    "an entry below a file",
    () =>
      tarOf([
        { path: "f", content: "x" },
        { path: "f/g", content: "x" },
      ]),
    "IMAGE_INVALID",
    /not a folder/,
  ],
  [
    "an entry below a loop of links",
    () => tarOf([{ path: "a", type: "symlink", link: "b" }, { path: "b", type: "symlink", link: "a" }, { path: "a/x" }]),
    "IMAGE_INVALID",
    /loop/,
  ],
  [
    "an entry below a link to a file",
    () => tarOf([{ path: "f", content: "x" }, { path: "l", type: "symlink", link: "/f" }, { path: "l/x" }]),
    "IMAGE_INVALID",
    /not a folder/,
  ],
  ["a root that is a file", () => tarOf([{ path: ".", type: "file", content: "x" }]), "IMAGE_INVALID", /root folder/],
  ["a symbolic link to nothing at all", () => tarOf([{ path: "s", type: "symlink", link: "" }]), "IMAGE_INVALID", /target/],
  ["an unknown kind of entry", () => patchHeader(one, 0, (block) => block.write("V", 156)), "IMAGE_INVALID", /unsupported kind/],
  ["a sparse file", () => patchHeader(one, 0, (block) => block.write("S", 156)), "IMAGE_INVALID", /unsupported kind/],
  ["a wrong checksum", () => Buffer.concat([Buffer.from("x"), one.subarray(1)]), "IMAGE_INVALID", /checksum/],
  ["a size beyond the end", () => patchHeader(one, 0, (block) => block.write("00000777777\0", 124)), "IMAGE_INVALID", /middle of an entry/],
  ["a negative size", () => patchHeader(one, 0, (block) => block.write("-0000000010\0", 124)), "IMAGE_INVALID", /number/],
  [
    "a size of 2^80",
    () => patchHeader(one, 0, (block) => block.fill(0xff, 125, 136).writeUInt8(0x80, 124)),
    "IMAGE_INVALID",
    /out of range/,
  ],
  ["a truncated archive", () => zeros(5000).subarray(0, 2000), "IMAGE_INVALID", /middle of an entry/],
  ["a truncated gzip", () => gzipSync(zeros(5000)).subarray(0, 40), "IMAGE_INVALID", /unpack/],
  ["a truncated zstd", () => zstdCompressSync(tarOf(FILES)).subarray(0, 60), "IMAGE_INVALID", /unpack|middle/],
  [
    "an extended header of 2 MiB",
    () => patchHeader(zeros(2 << 20), 0, (block) => block.write("x", 156)),
    "IMAGE_INVALID",
    /extended header/,
  ],
  [
    "a malformed extended header",
    () => patchHeader(tarOf([{ path: "x", content: "99 path=short\n" }]), 0, (block) => block.write("x", 156)),
    "IMAGE_INVALID",
    /malformed/,
  ],
  ["an archive without files", () => tarOf([]), "IMAGE_INVALID", /no files/],
  ["an empty file", () => Buffer.alloc(0), "IMAGE_INVALID", /no files/],
  ["text", () => Buffer.from("not a tar at all\n".repeat(100)), "IMAGE_INVALID", /checksum|number/],
  ["a layer that deletes '..'", () => wrapped([{ path: "d/.wh..." }]), "IMAGE_INVALID", /deletes/],
  ["a gzip bomb", () => gzipSync(zeros(160 * 1024 * 1024), { level: 9 }), "IMAGE_TOO_LARGE", /unpack/],
];

/** The items as the only layer of an OCI layout */
function wrapped(items: readonly Item[]): Buffer {
  const tar = tarOf(items);
  return tarOf(layoutItems(makeImage([{ tar, packed: tar }])));
}

for (const [what, make, code, message] of HOSTILE) {
  test(`refuses ${what} and leaves nothing`, async (t) => {
    const { home, done } = await importBytes(t, make());
    await assert.rejects(done, (error: Error & { code?: string }) => {
      assert.equal(error.code, code, error.message);
      assert.match(error.message, message);
      return true;
    });
    assert.deepEqual(await leftovers(home), []);
    assert.deepEqual(await new ImageStore(home).list(), []);
  });
}

test("limits of size and of entries hold", async (t) => {
  const home = await tempHome(t);
  const file = join(await tempDir(t), "x.tar");
  await writeFile(file, zeros(1_000_000));
  await assert.rejects(importImage(home, file, { name: "x", maxBytes: 100_000 }), { code: "IMAGE_TOO_LARGE" });
  assert.deepEqual(await leftovers(home), []);
});

test("an OCI layout whose blob does not match its digest is refused", async (t) => {
  const made = image();
  const items = layoutItems(made).map((item) =>
    item.path.endsWith(made.blobs[1]?.digest.slice(7) ?? "-")
      ? { ...item, content: Buffer.alloc(Buffer.from(item.content ?? "").length) }
      : item,
  );
  const { home, done } = await importBytes(t, tarOf(items));
  await assert.rejects(done, { code: "DIGEST_MISMATCH" });
  assert.deepEqual(await leftovers(home), []);
});
