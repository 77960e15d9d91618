// Delta files in the warden's format, see spec/delta-format.md.

import type { FileHandle } from "node:fs/promises";
import { ForkdError } from "../errors.ts";
import { readAt, writeAt } from "./file-io.ts";
import type { PageSource } from "./page-encode.ts";
import { BLOCK_PAGES, PAGE, type Extent } from "./page-format.ts";

const MAGIC = Buffer.from("FKDELTA1");
const VERSION = 1;
const HEADER = 64;
const ENTRY = 16;
/** number of index entries read at a time */
const BATCH = 4096;

/** The pages of a delta in order; throws SNAPSHOT_INVALID */
export async function readDelta(file: FileHandle, name: string): Promise<{ ramBytes: number; extents: Extent[] }> {
  const refuse = (why: string): ForkdError => new ForkdError("SNAPSHOT_INVALID", `Cannot pack snapshot ${name}: its delta ${why}.`);
  const { size } = await file.stat();
  const header = Buffer.alloc(HEADER);
  const { bytesRead } = await file.read(header, 0, HEADER, 0);
  if (bytesRead < HEADER || !header.subarray(0, 8).equals(MAGIC)) throw refuse("is unfinished");
  if (header.readUInt32LE(8) !== VERSION || header.readUInt32LE(12) !== PAGE) throw refuse("is of an unknown version");
  const [ramBytes = 0, pages = 0, indexAt = 0, entries = 0] = [16, 24, 32, 40].map((at) => Number(header.readBigUInt64LE(at)));
  if (indexAt < PAGE || indexAt % PAGE !== 0 || indexAt + entries * ENTRY !== size) throw refuse("has an index in the wrong place");
  const slots = indexAt / PAGE - 1;
  const extents: Extent[] = [];
  const sum = new Fnv();
  let next = 0;
  let found = 0;
  for (let at = 0; at < entries; at += BATCH) {
    const batch = Buffer.alloc(Math.min(BATCH, entries - at) * ENTRY);
    await readAt(file, batch, indexAt + at * ENTRY);
    sum.add(batch);
    for (let entry = 0; entry < batch.length; entry += ENTRY) {
      const first = Number(batch.readBigUInt64LE(entry));
      const count = batch.readUInt32LE(entry + 8);
      const slot = batch.readUInt32LE(entry + 12);
      if (count === 0 || first < next || (first + count) * PAGE > ramBytes || slot + count > slots)
        throw refuse("has an entry out of range");
      next = first + count;
      found += count;
      extents.push({ first, count, offset: PAGE + slot * PAGE });
    }
  }
  if (found !== pages || sum.value !== header.readBigUInt64LE(48)) throw refuse("has a wrong index");
  return { ramBytes, extents };
}

/** Offset of the first byte of a file among several; longer than any delta */
const FILE_SPAN = 2 ** 44;

/** Several delta files as one source of pages */
class DeltaFiles implements PageSource {
  readonly #files: readonly FileHandle[];

  constructor(files: readonly FileHandle[]) {
    this.#files = files;
  }

  async read(data: Buffer, at: number, length: number, position: number): Promise<{ bytesRead: number }> {
    const file = this.#files[Math.floor(position / FILE_SPAN)];
    return file ? file.read(data, at, length, position % FILE_SPAN) : { bytesRead: 0 };
  }
}

/** The pages of deltas that are applied in sequence, oldest first: each page once, from the newest delta */
export async function readDeltas(
  files: readonly FileHandle[],
  name: string,
): Promise<{ ramBytes: number; extents: Extent[]; source: PageSource }> {
  let ramBytes = 0;
  let extents: Extent[] = [];
  for (const [index, file] of files.entries()) {
    const delta = await readDelta(file, name);
    ({ ramBytes } = delta);
    extents = overlaid(
      extents,
      delta.extents.map((extent) => ({ ...extent, offset: extent.offset + index * FILE_SPAN })),
    );
  }
  return { ramBytes, extents, source: new DeltaFiles(files) };
}

/** The extents of both in page order; for a page in both, that of `above` */
function overlaid(below: readonly Extent[], above: readonly Extent[]): Extent[] {
  const all = [...above];
  let next = 0;
  for (const { first, count, offset } of below) {
    const end = first + count;
    const keep = (from: number, to: number): void => {
      if (from < to) all.push({ first: from, count: to - from, offset: offset + (from - first) * PAGE });
    };
    let at = first;
    for (let other = above[next]; other && other.first < end; other = above[next]) {
      keep(at, other.first);
      at = Math.max(at, other.first + other.count);
      if (at > end) break;
      next++;
    }
    keep(at, end);
  }
  return all.toSorted((a, b) => a.first - b.first);
}

/** Pages in memory order, each in the next slot */
export class DeltaWriter {
  readonly #file: FileHandle;
  readonly #ramBytes: number;
  readonly #entries: { first: number; count: number; slot: number }[] = [];
  readonly #room = Buffer.alloc(BLOCK_PAGES * PAGE);
  #slots = 0;

  constructor(file: FileHandle, ramBytes: number) {
    this.#file = file;
    this.#ramBytes = ramBytes;
  }

  async data(first: number, pages: Buffer): Promise<void> {
    await writeAt(this.#file, pages, PAGE + this.#next(first, pages.length / PAGE) * PAGE);
  }

  async copy(first: number, source: number, count: number): Promise<void> {
    const pages = this.#room.subarray(0, count * PAGE);
    for (let at = 0; at < count; at++) {
      const page = pages.subarray(at * PAGE, (at + 1) * PAGE);
      const slot = this.#slotOf(source + at);
      // missing pages would be read from the base, which is not available here
      if (slot === undefined) page.fill(0);
      else await readAt(this.#file, page, PAGE + slot * PAGE);
    }
    await this.data(first, pages);
  }

  /** A hole in the file */
  async zero(first: number, count: number): Promise<void> {
    const slot = this.#next(first, count);
    await this.#file.truncate(PAGE + (slot + count) * PAGE);
  }

  async finish(): Promise<void> {
    const indexAt = PAGE + this.#slots * PAGE;
    await this.#file.truncate(indexAt);
    const sum = new Fnv();
    for (let at = 0; at < this.#entries.length; at += BATCH) {
      const entries = this.#entries.slice(at, at + BATCH);
      const batch = Buffer.alloc(entries.length * ENTRY);
      for (const [index, { first, count, slot }] of entries.entries()) {
        batch.writeBigUInt64LE(BigInt(first), index * ENTRY);
        batch.writeUInt32LE(count, index * ENTRY + 8);
        batch.writeUInt32LE(slot, index * ENTRY + 12);
      }
      sum.add(batch);
      await writeAt(this.#file, batch, indexAt + at * ENTRY);
    }
    const header = Buffer.alloc(HEADER);
    MAGIC.copy(header);
    header.writeUInt32LE(VERSION, 8);
    header.writeUInt32LE(PAGE, 12);
    for (const [at, value] of [this.#ramBytes, this.#slots, indexAt, this.#entries.length].entries())
      header.writeBigUInt64LE(BigInt(value), 16 + at * 8);
    header.writeBigUInt64LE(sum.value, 48);
    await writeAt(this.#file, header, 0);
  }

  #next(first: number, count: number): number {
    const slot = this.#slots;
    const last = this.#entries.at(-1);
    if (last && last.first + last.count === first) last.count += count;
    else this.#entries.push({ first, count, slot });
    this.#slots += count;
    return slot;
  }

  #slotOf(page: number): number | undefined {
    let low = 0;
    let high = this.#entries.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const entry = this.#entries[middle];
      if (!entry || entry.first > page) high = middle - 1;
      else if (entry.first + entry.count <= page) low = middle + 1;
      else return entry.slot + page - entry.first;
    }
    return undefined;
  }
}

/** FNV-1a with 64 bits, in two halves */
class Fnv {
  #low = 0x84222325;
  #high = 0xcbf29ce4;

  add(bytes: Uint8Array): void {
    let low = this.#low;
    let high = this.#high;
    for (const byte of bytes) {
      low = (low ^ byte) >>> 0;
      const product = low * 0x1b3;
      high = (Math.imul(high, 0x1b3) + (low << 8) + Math.floor(product / 2 ** 32)) >>> 0;
      low = product >>> 0;
    }
    this.#low = low;
    this.#high = high;
  }

  get value(): bigint {
    return (BigInt(this.#high) << 32n) | BigInt(this.#low);
  }
}
