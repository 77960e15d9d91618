// Encodes pages as a stream of runs.

import { open } from "node:fs/promises";
import { SEGMENT, SegmentRing } from "./compress.ts";
import { BLOCK_PAGES, encodeHeader, PAGE, RUN, RUN_BYTES, writeRun, type Extent, type Run, type RunKind } from "./page-format.ts";

const ZERO_BLOCK = Buffer.alloc(BLOCK_PAGES * PAGE);
/** Number of different pages whose position is remembered: 4 GiB. Later pages may be stored twice */
const MAX_KNOWN = 1024 * 1024;

/** `absent`: a missing page is zero; `stored`: a missing page is that of the base */
export type Zeroes = "absent" | "stored";

/** A file, or several as one */
export type PageSource = { read(data: Buffer, at: number, length: number, position: number): Promise<{ bytesRead: number }> };

/** Number of written pages; final when the stream has ended */
export type Counted = { pages: number };

/** A complete file; its zero pages are left out */
export async function* encodeFile(path: string, counted: Counted): AsyncGenerator<Buffer> {
  await using file = await open(path, "r");
  const { size } = await file.stat();
  const count = Math.ceil(size / PAGE);
  yield* encodePages(file, size, [{ first: 0, count, offset: 0 }], "absent", counted);
}

/** Extents in the order of their pages */
export async function* encodePages(
  file: PageSource,
  bytes: number,
  extents: Iterable<Extent>,
  zeroes: Zeroes,
  counted: Counted,
): AsyncGenerator<Buffer> {
  const out = new Output();
  out.add(encodeHeader(bytes));
  const known = new KnownPages(file);
  const room = Buffer.allocUnsafeSlow(BLOCK_PAGES * PAGE);
  for (const block of blocksOf(extents)) {
    for (const piece of block.pieces) await fill(file, placeOf(piece, block, room), piece.offset);
    const isAllZero = block.pieces.every((piece) => isZero(placeOf(piece, block, room)));
    if (isAllZero && zeroes === "absent") continue;
    for (const run of await runsOf(room, block, zeroes, known)) {
      counted.pages += run.count;
      out.run(run);
      if (run.kind === RUN.data) out.add(placeOf(run, block, room));
    }
    yield* out.full();
  }
  out.run({ kind: RUN.end, count: 0, first: 0, source: 0 });
  yield* out.rest();
}

/** The existing pages from a multiple of the block size on */
type Block = { start: number; pieces: Extent[] };

/** The same output for the same pages, wherever they are in the file */
function* blocksOf(extents: Iterable<Extent>): Generator<Block> {
  let block: Block = { start: 0, pieces: [] };
  for (const { first, count, offset } of extents) {
    for (let at = 0; at < count;) {
      const page = first + at;
      const within = page % BLOCK_PAGES;
      const size = Math.min(BLOCK_PAGES - within, count - at);
      if (page - within !== block.start) {
        if (block.pieces.length > 0) yield block;
        block = { start: page - within, pieces: [] };
      }
      block.pieces.push({ first: page, count: size, offset: offset + at * PAGE });
      at += size;
    }
  }
  if (block.pieces.length > 0) yield block;
}

function placeOf({ first, count }: { first: number; count: number }, block: Block, room: Buffer): Buffer {
  return room.subarray((first - block.start) * PAGE, (first - block.start + count) * PAGE);
}

function isZero(data: Buffer): boolean {
  return data.equals(data.length === ZERO_BLOCK.length ? ZERO_BLOCK : ZERO_BLOCK.subarray(0, data.length));
}

/** Bytes beyond the end of the file are zero */
async function fill(file: PageSource, data: Buffer, offset: number): Promise<void> {
  for (let at = 0; at < data.length;) {
    const { bytesRead } = await file.read(data, at, data.length - at, offset + at);
    if (bytesRead === 0) {
      data.fill(0, at);
      return;
    }
    at += bytesRead;
  }
}

async function runsOf(room: Buffer, block: Block, zeroes: Zeroes, known: KnownPages): Promise<Run[]> {
  const words = new Uint32Array(room.buffer, room.byteOffset, room.length / 4);
  const runs: Run[] = [];
  const add = (kind: RunKind, first: number, source: number): void => {
    const last = runs.at(-1);
    const goesOn = last?.kind === kind && last.first + last.count === first;
    if (goesOn && (kind !== RUN.copy || last.source + last.count === source)) last.count++;
    else runs.push({ kind, count: 1, first, source });
  };
  for (const piece of block.pieces) {
    for (let at = 0; at < piece.count; at++) {
      const page = piece.first + at;
      const place = page - block.start;
      if (words[place * (PAGE / 4)] === 0 && room.compare(ZERO_BLOCK, 0, PAGE, place * PAGE, (place + 1) * PAGE) === 0) {
        if (zeroes === "stored") add(RUN.zero, page, 0);
        continue;
      }
      const seen = known.seen(words, place, page, piece.offset + at * PAGE);
      const source = seen && (await known.compare(seen, room, place));
      if (source === undefined) add(RUN.data, page, 0);
      else add(RUN.copy, page, source);
    }
  }
  return runs;
}

type Known = { page: number; offset: number };

/** Position of the first page of each content. A fingerprint only selects a candidate; the pages are compared */
class KnownPages {
  readonly #file: PageSource;
  readonly #pages = new Map<number, Known>();
  readonly #last = { offset: -1, data: Buffer.alloc(PAGE) };

  constructor(file: PageSource) {
    this.#file = file;
  }

  /** Position of a page that may be equal; remembers a new page */
  seen(words: Uint32Array, place: number, page: number, offset: number): Known | undefined {
    const print = fingerprint(words, place * (PAGE / 4));
    const found = this.#pages.get(print);
    if (!found && this.#pages.size < MAX_KNOWN) this.#pages.set(print, { page, offset });
    return found;
  }

  /** The page, if it is equal */
  async compare({ page, offset }: Known, room: Buffer, place: number): Promise<number | undefined> {
    if (this.#last.offset !== offset) {
      await fill(this.#file, this.#last.data, offset);
      this.#last.offset = offset;
    }
    return this.#last.data.compare(room, place * PAGE, (place + 1) * PAGE) === 0 ? page : undefined;
  }
}

/** 53-bit hash of a page, in four independent parts */
function fingerprint(words: Uint32Array, from: number): number {
  let [a, b, c, d] = [1, 2, 3, 4];
  for (let at = from, end = from + PAGE / 4; at < end; at += 4) {
    a = (Math.imul(a, 0x9e37_79b1) + (words[at] as number)) | 0;
    b = (Math.imul(b, 0x85eb_ca6b) + (words[at + 1] as number)) | 0;
    c = (Math.imul(c, 0xc2b2_ae35) + (words[at + 2] as number)) | 0;
    d = (Math.imul(d, 0x27d4_eb2f) + (words[at + 3] as number)) | 0;
  }
  const high = Math.imul(a ^ (c >>> 15) ^ (c << 17), 0x85eb_ca6b) ^ b;
  const low = Math.imul(b ^ (d >>> 13) ^ (d << 19), 0xc2b2_ae35) ^ a ^ d;
  return (high >>> 0) * 2 ** 21 + (low >>> 11);
}

/** Joins small pieces into segments */
class Output {
  readonly #ring = new SegmentRing();
  #data = this.#ring.next();
  #used = 0;
  readonly #full: Buffer[] = [];

  run(run: Run): void {
    const record = Buffer.allocUnsafe(RUN_BYTES);
    writeRun(run, record, 0);
    this.add(record);
  }

  add(piece: Buffer): void {
    for (let at = 0; at < piece.length;) {
      const size = Math.min(piece.length - at, SEGMENT - this.#used);
      piece.copy(this.#data, this.#used, at, at + size);
      this.#used += size;
      at += size;
      if (this.#used < SEGMENT) continue;
      this.#full.push(this.#data);
      this.#data = this.#ring.next();
      this.#used = 0;
    }
  }

  *full(): Generator<Buffer> {
    for (let piece = this.#full.shift(); piece; piece = this.#full.shift()) yield piece;
  }

  *rest(): Generator<Buffer> {
    yield* this.full();
    yield this.#data.subarray(0, this.#used);
  }
}
