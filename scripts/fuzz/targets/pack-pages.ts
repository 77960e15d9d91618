// Fuzz target: pages of a memory or a delta in a pack, unpacked and packed again.

import assert from "node:assert/strict";
import { mkdtemp, open, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readDelta } from "@forkd/runtime/pack/delta-file";
import { decodeDelta, decodeFile } from "@forkd/runtime/pack/page-decode";
import { encodeFile, encodePages } from "@forkd/runtime/pack/page-encode";
import { encodeHeader, HEADER_BYTES, PAGE, readRun, RUN, RUN_BYTES, writeRun } from "@forkd/runtime/pack/page-format";
import { declared, piecesOf, streamOf, type Target } from "../target.ts";
import type { Random } from "../../../tests/helpers/random.ts";

const CODES = ["PACK_INVALID", "PACK_CORRUPT"] as const;
const PAGES = 300;
/** Size of an input's header, two bytes each: number of pages in the manifest, and memory size beyond PAGES pages */
const STATED = 4;
let folder = "";
let count = 0;

const run = (kind: number, length: number, first: number, source = 0): Buffer => {
  const record = Buffer.alloc(RUN_BYTES);
  writeRun({ kind: kind as 0, count: length, first, source }, record, 0);
  return record;
};

/**
 * Input: the sizes in the manifest, and a stream with one byte per page. Whole pages would make the corpus large, and
 * nearly every mutation would only change content.
 */
export const target: Target = {
  sources: [
    "packages/runtime/src/pack/page-decode.ts",
    "packages/runtime/src/pack/page-format.ts",
    "packages/runtime/src/pack/delta-file.ts",
    "packages/runtime/src/pack/page-encode.ts",
    "packages/runtime/src/util/byte-source.ts",
  ],
  tokens: [
    run(RUN.end, 0, 0),
    run(RUN.data, 1, 1),
    run(RUN.copy, 1, 2, 1),
    run(RUN.zero, 2, 3),
    run(RUN.data, 256, 0),
    encodeHeader(PAGES * PAGE),
    Buffer.alloc(8, 0xff),
  ],
  maxBytes: 4000,
  mutate: (input, random) => shuffled(input, random),
  open: async () => {
    folder = await mkdtemp(join(tmpdir(), "forkd-fuzz-"));
    return { [Symbol.asyncDispose]: async () => rm(folder, { recursive: true }) };
  },
  run: async (input) => {
    if (input.length < STATED) return "short";
    const stated = { pages: input.readUInt16LE(0), bytes: PAGES * PAGE + input.readUInt16LE(2) };
    const stream = thick(input.subarray(STATED));
    const file = await decoded(
      async (path) => decodeFile(streamOf([stream]), path, stated),
      async (path) => checkFile(path, stated.bytes),
    );
    // a memory consists of whole pages
    if (stated.bytes % PAGE !== 0) return file;
    const delta = await decoded(
      async (path) => decodeDelta(streamOf(piecesOf(stream)), path, stated),
      async (path) => checkDelta(path, stated),
    );
    return `${file} | ${delta}`;
  },
};

async function decoded(write: (path: string) => Promise<void>, check: (path: string) => Promise<string>): Promise<string> {
  const path = join(folder, String(count++));
  try {
    await write(path);
    return await check(path);
  } catch (error) {
    return declared(error, CODES);
  } finally {
    await rm(path, { force: true });
  }
}

/** Checks that the file has the stated size and survives packing and unpacking */
async function checkFile(path: string, bytes: number): Promise<string> {
  const content = await readFile(path);
  assert.equal(content.length, bytes);
  const counted = { pages: 0 };
  const packed = await copied(encodeFile(path, counted));
  const again = `${path}-again`;
  try {
    await decodeFile(streamOf([packed]), again, { bytes, pages: counted.pages });
    assert.ok((await readFile(again)).equals(content), "a file that was packed and unpacked is another one");
  } finally {
    await rm(again, { force: true });
  }
  return "file";
}

/** Checks that the delta is readable and that its pages survive packing and unpacking */
async function checkDelta(path: string, stated: { pages: number; bytes: number }): Promise<string> {
  await using file = await open(path, "r");
  const { ramBytes, extents } = await readDelta(file, "x");
  assert.equal(ramBytes, stated.bytes);
  assert.equal(
    extents.reduce((sum, one) => sum + one.count, 0),
    stated.pages,
  );
  const counted = { pages: 0 };
  const packed = await copied(encodePages(file, ramBytes, extents, "stored", counted));
  assert.equal(counted.pages, stated.pages);
  const again = `${path}-again`;
  try {
    await decodeDelta(streamOf([packed]), again, stated);
    assert.ok((await readFile(again)).equals(await readFile(path)), "a delta that was packed and unpacked is another one");
  } finally {
    await rm(again, { force: true });
  }
  return "delta";
}

/** Copies each piece: the reader reuses its buffers after a few more reads */
async function copied(pieces: AsyncIterable<Buffer>): Promise<Buffer> {
  const all: Buffer[] = [];
  for await (const piece of pieces) all.push(Buffer.from(piece));
  return Buffer.concat(all);
}

/** Expands each byte after a data run to a whole page */
function thick(thin: Buffer): Buffer {
  const parts: Buffer[] = [thin.subarray(0, HEADER_BYTES)];
  for (let at = HEADER_BYTES; at < thin.length;) {
    const record = thin.subarray(at, at + RUN_BYTES);
    parts.push(record);
    at += record.length;
    if (record.length < RUN_BYTES) break;
    const { kind, count: pages } = readRun(record);
    if (kind === RUN.end) {
      parts.push(thin.subarray(at));
      break;
    }
    if (kind !== RUN.data) continue;
    for (let left = Math.min(pages, PAGES); left > 0 && at < thin.length; left--) parts.push(Buffer.alloc(PAGE, thin[at++]));
  }
  return Buffer.concat(parts);
}

/** Adds, changes and removes runs, and usually corrects the stated number of pages */
function shuffled(input: Buffer, random: Random): Buffer {
  const parts: Buffer[] = [];
  let next = random.below(3);
  let pages = 0;
  for (let left = random.below(8); left > 0; left--) {
    const kind = random.pick([RUN.data, RUN.data, RUN.copy, RUN.zero]) ?? RUN.data;
    const length = 1 + random.below(random.pick([2, 5, 40]) ?? 2);
    const source = kind === RUN.copy ? random.below(next + 1) : 0;
    parts.push(run(kind, length, next, source));
    if (kind === RUN.data) parts.push(Buffer.from(Array.from({ length }, () => random.below(3))));
    pages += length;
    next += length + random.below(random.pick([1, 3, 100]) ?? 1);
  }
  const head = Buffer.alloc(STATED);
  head.writeUInt16LE(random.below(6) === 0 ? random.below(400) : pages, 0);
  const extra = random.below(3) === 0 ? random.below(PAGE) : 0;
  head.writeUInt16LE(extra, 2);
  const made = Buffer.concat([head, encodeHeader(PAGES * PAGE + extra), ...parts, run(RUN.end, 0, 0)]);
  // new runs only, or the first runs of the input followed by the new ones
  return random.below(2) === 0
    ? made
    : Buffer.concat([head, input.subarray(STATED, STATED + HEADER_BYTES + RUN_BYTES * random.below(4)), ...parts, run(RUN.end, 0, 0)]);
}
