// Disk layers on the host: creation, sharing, flattening.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, open, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { promisify } from "node:util";
import { convertLayers, type ConvertHost } from "../../src/vmm/qemu/img.ts";
import { flattenLayers } from "../../src/vmm/qemu/img.ts";
import { formatArgs, formatDisk } from "../../src/disk/format.ts";
import { layerBytes, layersIn, linkLayers, type Layer } from "../../src/disk/layer.ts";
import { checkOverlay, writeOverlay } from "../../src/disk/overlay.ts";
import { findProgram, searchPath } from "../../src/util/find-program.ts";
import { diskNodes } from "../../src/vmm/qemu/block-node.ts";

const exec = promisify(execFile);
const run = async (argv: string[]): Promise<string> =>
  (await exec(argv[0] ?? "", argv.slice(1), { env: { ...process.env, PATH: searchPath() } })).stdout;
const noQemuImg = (await findProgram("qemu-img")) ? false : "qemu-img is not installed";
const MIB = 1024 * 1024;
/** Confinement of tests that convert nothing */
const FREE: ConvertHost = { confinement: "none" };

let dir: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "forkd-layers-"));
});
afterEach(async () => rm(dir, { recursive: true, force: true }));

/** Writes into the uppermost layer, as a VMM does */
async function write(layers: readonly Layer[], offset: number, text: string): Promise<void> {
  const file = join(dir, "pattern");
  await writeFile(file, text.padEnd(512, "."));
  const active = layers.at(-1);
  assert.ok(active);
  const [opened, disk] = diskNodes(layers.slice(0, -1), active);
  const image = `json:${JSON.stringify({ ...disk, file: opened })}`;
  await run(["qemu-io", "-c", `write -s ${file} ${offset} 512`, image]);
}

async function textAt(path: string, offset: number): Promise<string> {
  await using file = await open(path, "r");
  const { buffer } = await file.read(Buffer.alloc(512), 0, 512, offset);
  return buffer.toString().replace(/[.\0]+$/, "");
}

test("an empty layer is a small, valid qcow2 file of the requested size, readable only by its owner", { skip: noQemuImg }, async () => {
  for (const sizeMiB of [16, 100, 1024 * 1024]) {
    const path = join(dir, `${sizeMiB}.qcow2`);
    await writeOverlay(path, sizeMiB);
    const info = JSON.parse(await run(["qemu-img", "info", "--output=json", path])) as Record<string, unknown>;
    assert.deepEqual([info["format"], info["virtual-size"], info["backing-filename"]], ["qcow2", sizeMiB * MIB, undefined]);
    await run(["qemu-img", "check", path]);
    const { blocks, mode } = await stat(path);
    assert.ok(blocks * 512 <= 64 * 1024, `${blocks * 512} bytes`);
    assert.equal(mode & 0o777, 0o600);
  }
});

test("a new layer does not overwrite an existing file", async () => {
  const path = join(dir, "a.qcow2");
  await writeFile(path, "mine");
  await assert.rejects(writeOverlay(path, 16), { code: "EEXIST" });
  assert.equal(await readFile(path, "utf8"), "mine");
});

test("a layer with a changed header is refused", async () => {
  const cases: [name: string, offset: number, bytes: Buffer][] = [
    ["another format", 0, Buffer.from("ELF")],
    ["the name of a backing file", 8, Buffer.from([0, 0, 0, 0, 0, 0, 1, 0])],
    ["another size", 24, Buffer.from([0, 0, 1, 0])],
    ["encryption", 32, Buffer.from([0, 0, 0, 2])],
    ["its data in another file", 72, Buffer.from([0, 0, 0, 0, 0, 0, 0, 0x14])],
  ];
  for (const [name, offset, bytes] of cases) {
    const path = join(dir, `${offset}.qcow2`);
    await writeOverlay(path, 64);
    await checkOverlay(path, 64);
    const file = await open(path, "r+");
    await file.write(bytes, 0, bytes.length, offset);
    await file.close();
    await assert.rejects(checkOverlay(path, 64), { code: "SNAPSHOT_INVALID" }, name);
  }
});

test("a new disk is an empty ext4 that takes almost no host space", async () => {
  const path = join(dir, "disk.raw");
  await formatDisk(path, 2048);
  const { size, blocks, mode } = await stat(path);
  assert.equal(size, 2048 * MIB);
  assert.ok(blocks * 512 < 2 * MIB, `${blocks * 512} bytes`);
  assert.equal(mode & 0o777, 0o600);
  await run(["e2fsck", "-fn", path]);
  const facts = await run(["dumpe2fs", "-h", path]);
  assert.doesNotMatch(facts, /has_journal/);
  assert.match(facts, /^Reserved block count: +0$/m);
  assert.ok(formatArgs(path).includes("-F"), "mkfs asks nothing");
});

test("layers are hard links, and the last removal frees them", async () => {
  const [a, b] = [join(dir, "a"), join(dir, "b")];
  for (const folder of [a, b]) await mkdir(folder);
  const ids = ["dk-aaaaaaaaaaaaaaaa", "dk-bbbbbbbbbbbbbbbb"];
  const layers = layersIn(a, ids);
  assert.deepEqual(
    layers.map(({ format }) => format),
    ["raw", "qcow2"],
  );
  for (const { path } of layers) await writeFile(path, Buffer.alloc(8192, 1));
  const paths = layers.map(({ path }) => path);
  const alone = await layerBytes(paths);
  assert.ok(alone.bytes > 0);
  assert.equal(alone.ownBytes, alone.bytes);
  assert.deepEqual(await linkLayers(layers, b), ids);
  assert.deepEqual(await layerBytes(paths), { bytes: alone.bytes, ownBytes: 0 });
  await rm(a, { recursive: true });
  const left = layersIn(b, ids).map(({ path }) => path);
  assert.deepEqual(await layerBytes(left), alone);
});

for (const confinement of ["none", "namespaces"] as const)
  test(`many layers become one with the same content (confinement: ${confinement})`, { skip: noQemuImg }, async () => {
    const host = { confinement };
    const ids = ["dk-aaaaaaaaaaaaaaaa", "dk-bbbbbbbbbbbbbbbb", "dk-cccccccccccccccc"];
    const layers = layersIn(dir, ids);
    await writeFile(layers[0]?.path ?? "", "");
    await run(["truncate", "-s", "64M", layers[0]?.path ?? ""]);
    for (const { path } of layers.slice(1)) await writeOverlay(path, 64);
    await write(layers.slice(0, 1), 0, "base");
    await write(layers.slice(0, 1), 4096, "base");
    await write(layers.slice(0, 2), 4096, "middle");
    await write(layers.slice(0, 2), 8192, "middle");
    await write(layers, 8192, "top");
    await write(layers, 32 * MIB, "top");
    const out = join(dir, "out");
    await mkdir(out);
    const flat = await flattenLayers(layers, 64, out, host);
    assert.equal(flat.format, "raw");
    assert.ok(!ids.includes(flat.id));
    const texts = await Promise.all([0, 4096, 8192, 32 * MIB, 48 * MIB].map(async (offset) => textAt(flat.path, offset)));
    assert.deepEqual(texts, ["base", "middle", "top", "top", ""]);
    const { size, blocks } = await stat(flat.path);
    assert.equal(size, 64 * MIB);
    assert.ok(blocks * 512 < MIB, "empty clusters take no space");
  });

test("a layer that names another file as its content exposes nothing of that file", { skip: noQemuImg }, async () => {
  const layers = layersIn(dir, ["dk-aaaaaaaaaaaaaaaa", "dk-bbbbbbbbbbbbbbbb"]);
  const [base, top] = layers;
  assert.ok(base && top);
  const secret = join(dir, "secret");
  await writeFile(secret, Buffer.alloc(MIB, "secret"));
  await run(["truncate", "-s", "1M", base.path]);
  await run(["qemu-img", "create", "-q", "-f", "qcow2", "-o", `data_file=${secret},data_file_raw=on`, top.path, "1M"]);
  await writeFile(secret, Buffer.alloc(MIB, "secret"));
  const out = join(dir, "out.raw");
  await assert.rejects(convertLayers(layers, 1, out, { confinement: "namespaces" }), {
    code: "HOST_COMMAND_FAILED",
    message: /No such file/,
  });
  assert.equal(await textAt(out, 0), "");
});

test("qemu-img has limits, confined or not", { skip: noQemuImg }, async (t) => {
  const bin = join(dir, "bin");
  await mkdir(bin);
  // A program in place of qemu-img that prints its limits; others cannot read the limits of a confined process.
  const script = (start: string): string => `#!/usr/bin/python3 -I
import os, resource, sys
if sys.argv[1] == "--version": ${start}
limits = [resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)]
open(sys.argv[-1], "r+").write(repr(limits))
`;
  const { PATH } = process.env;
  process.env["PATH"] = `${bin}:${PATH}`;
  t.after(() => (process.env["PATH"] = PATH));
  const layers = layersIn(dir, ["dk-aaaaaaaaaaaaaaaa"]);
  await writeFile(layers[0]?.path ?? "", "");
  for (const [confinement, start] of [
    ["namespaces", "sys.exit()"],
    ["none", "sys.exit('not here')"],
  ] as const) {
    await writeFile(join(bin, "qemu-img"), script(start), { mode: 0o755 });
    const out = join(dir, `${confinement}.raw`);
    await convertLayers(layers, 1, out, { confinement });
    assert.equal(await textAt(out, 0), JSON.stringify([4 * 1024 * MIB, 3600, MIB, 0]).replaceAll(",", ", "));
  }
});

test("a single layer is shared, not copied", async () => {
  const [only] = layersIn(dir, ["dk-aaaaaaaaaaaaaaaa"]);
  assert.ok(only);
  await writeFile(only.path, "disk");
  const out = join(dir, "out");
  await mkdir(out);
  const flat = await flattenLayers([only], 64, out, FREE);
  assert.equal(flat.id, only.id);
  assert.equal((await stat(flat.path)).ino, (await stat(only.path)).ino);
});

test("layers with a forged header are not flattened", async () => {
  const layers = layersIn(dir, ["dk-aaaaaaaaaaaaaaaa", "dk-bbbbbbbbbbbbbbbb"]);
  for (const { path } of layers) await writeFile(path, Buffer.alloc(4096));
  await assert.rejects(flattenLayers(layers, 64, dir, FREE), { code: "SNAPSHOT_INVALID" });
});
