// Writes files from a stream of runs. Every number in it is checked before it is used.

import { open, type FileHandle } from "node:fs/promises";
import { ByteSource } from "../util/byte-source.ts";
import { corrupt, writeFailure } from "./compress.ts";
import { DeltaWriter } from "./delta-file.ts";
import { readAt, writeAt } from "./file-io.ts";
import { packInvalid } from "./manifest.ts";
import { BLOCK_PAGES, HEADER_BYTES, MAGIC, PAGE, readRun, RUN, RUN_BYTES, type Run } from "./page-format.ts";

/** From the manifest: bytes of the file or memory, and number of written pages */
export type Stated = { bytes: number; pages: number };

/** Destination of pages; they are written in order, each once */
interface PageSink {
  data(first: number, pages: Buffer): Promise<void>;
  copy(first: number, source: number, count: number): Promise<void>;
  zero(first: number, count: number): Promise<void>;
}

/** A sparse file; pages that are not in the stream are zero */
export async function decodeFile(content: AsyncIterable<Buffer>, path: string, stated: Stated): Promise<void> {
  await writing(path, async (file) => {
    await file.truncate(stated.bytes);
    await decode(content, stated, new FileSink(file));
    // the last page may be larger than the rest of the file
    await file.truncate(stated.bytes);
  });
}

/** A delta file, see spec/delta-format.md */
export async function decodeDelta(content: AsyncIterable<Buffer>, path: string, stated: Stated): Promise<void> {
  await writing(path, async (file) => {
    const delta = new DeltaWriter(file, stated.bytes);
    await decode(content, stated, delta);
    await delta.finish();
  });
}

async function decode(content: AsyncIterable<Buffer>, stated: Stated, sink: PageSink): Promise<void> {
  const source = new ByteSource(content, () => corrupt("it ends too early"));
  try {
    const header = await source.take(HEADER_BYTES);
    if (!header.subarray(0, MAGIC.length).equals(MAGIC)) throw packInvalid("a blob of pages does not begin as one");
    if (header.readBigUInt64LE(8) !== BigInt(stated.bytes)) throw packInvalid(`a blob of pages is not for ${stated.bytes} bytes`);
    const end = Math.ceil(stated.bytes / PAGE);
    let next = 0;
    let written = 0;
    for (;;) {
      const run = readRun(await source.take(RUN_BYTES));
      if (run.kind === RUN.end) break;
      checkRun(run, next, end);
      written += run.count;
      if (written > stated.pages) throw packInvalid(`a blob of pages writes more than the ${stated.pages} pages it should`);
      next = run.first + run.count;
      if (run.kind === RUN.data) await sink.data(run.first, await source.take(run.count * PAGE));
      else if (run.kind === RUN.copy) await sink.copy(run.first, run.source, run.count);
      else await sink.zero(run.first, run.count);
    }
    if (written !== stated.pages) throw packInvalid(`a blob of pages writes ${written} pages instead of ${stated.pages}`);
    if (!(await source.isAtEnd())) throw packInvalid("something follows the end of a blob of pages");
  } finally {
    await source.close();
  }
}

function checkRun({ kind, count, first, source }: Run, next: number, end: number): void {
  const isKnown = kind === RUN.data || kind === RUN.copy || kind === RUN.zero;
  if (!isKnown) throw packInvalid(`a blob of pages has a run of the unknown kind ${kind}`);
  if (count < 1 || count > BLOCK_PAGES) throw packInvalid(`a blob of pages has a run of ${count} pages`);
  if (first < next || first + count > end) throw packInvalid(`a blob of pages has a run at page ${first}, out of order or behind the end`);
  if (kind === RUN.copy && source + count > first) throw packInvalid(`a blob of pages copies page ${source}, which is not before ${first}`);
}

class FileSink implements PageSink {
  readonly #file: FileHandle;
  readonly #page = Buffer.alloc(BLOCK_PAGES * PAGE);

  constructor(file: FileHandle) {
    this.#file = file;
  }

  async data(first: number, pages: Buffer): Promise<void> {
    await writeAt(this.#file, pages, first * PAGE);
  }

  async copy(first: number, source: number, count: number): Promise<void> {
    const pages = this.#page.subarray(0, count * PAGE);
    await readAt(this.#file, pages, source * PAGE);
    await writeAt(this.#file, pages, first * PAGE);
  }

  async zero(): Promise<void> {
    throw packInvalid("a blob of pages has zero pages where they are left out");
  }
}

async function writing(path: string, work: (file: FileHandle) => Promise<void>): Promise<void> {
  try {
    await using file = await open(path, "wx+", 0o600);
    await work(file);
  } catch (error) {
    throw writeFailure(error);
  }
}
