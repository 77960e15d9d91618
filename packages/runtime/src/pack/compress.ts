// Compresses and decompresses zstd files, with digests of both sides.

import { createHash, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { constants, createZstdDecompress, zstdCompress } from "node:zlib";
import { ForkdError } from "../errors.ts";

/** Each segment is its own frame, so that several are compressed in parallel; the output does not depend on how many */
export const SEGMENT: number = 4 * 1024 * 1024;
const CHUNK = 1024 * 1024;
/** Upper bound of a compressed segment: with this much room zstd compresses without an intermediate copy */
const FRAME_ROOM: number = SEGMENT + SEGMENT / 64;
/** Memory that a reader may need: 8 MiB, as for level 19 */
const WINDOW_LOG = 23;
/** libuv has four threads for this, and file operations need one of them */
export const COMPRESS_THREADS: number = Math.min(availableParallelism(), 3);

export const DEFAULT_LEVEL = 3;
export const MAX_LEVEL = 19;

export type Sum = { digest: string; size: number };
type Flow = { signal?: AbortSignal | undefined; onBytes?: ((bytes: number) => void) | undefined };

const compress = promisify(zstdCompress);

/** Compresses segments into a new file */
export async function compressInto(
  path: string,
  segments: AsyncIterable<Buffer>,
  opts: Flow & { level: number },
): Promise<{ content: Sum; packed: Sum }> {
  const content = new Summer();
  const packed = new Summer();
  const params = { [constants.ZSTD_c_compressionLevel]: opts.level };
  const frames: Promise<Buffer>[] = [];
  try {
    await using file = await open(path, "wx", 0o600);
    const writeFirst = async (): Promise<void> => {
      const frame = await frames[0];
      void frames.shift();
      if (!frame) return;
      packed.add(frame);
      await file.writeFile(frame);
    };
    for await (const segment of segments) {
      opts.signal?.throwIfAborted();
      frames.push(compress(segment, { chunkSize: FRAME_ROOM, params }));
      content.add(segment);
      opts.onBytes?.(segment.length);
      if (frames.length > COMPRESS_THREADS) await writeFirst();
    }
    while (frames.length > 0) await writeFirst();
  } catch (error) {
    throw writeFailure(error);
  } finally {
    await Promise.allSettled(frames);
  }
  return { content: content.sum(), packed: packed.sum() };
}

/** A ring of segment buffers: while one is filled and one is handed over, the others are being compressed */
export class SegmentRing {
  readonly #rooms = Array.from({ length: COMPRESS_THREADS + 3 }, () => Buffer.alloc(0));
  #at = 0;

  next(): Buffer {
    const at = this.#at++ % this.#rooms.length;
    return (this.#rooms[at] = this.#rooms[at]?.length ? this.#rooms[at] : Buffer.allocUnsafeSlow(SEGMENT));
  }
}

/** A file in segments; each is valid until a few more were requested */
export async function* segmentsOf(path: string): AsyncGenerator<Buffer> {
  await using file = await open(path, "r");
  const ring = new SegmentRing();
  for (;;) {
    const segment = ring.next();
    const size = await readFully(file, segment);
    if (size > 0) yield segment.subarray(0, size);
    if (size < SEGMENT) return;
  }
}

async function readFully(file: FileHandle, into: Buffer): Promise<number> {
  for (let at = 0; ;) {
    const { bytesRead } = await file.read(into, at, into.length - at);
    at += bytesRead;
    if (bytesRead === 0 || at === into.length) return at;
  }
}

/** The content of a compressed file; throws PACK_CORRUPT as soon as it exceeds the stated size, or when it differs at the end */
export async function* decompress(path: string, stated: Sum, opts: Flow = {}): AsyncGenerator<Buffer> {
  const sum = new Summer();
  const zstd = createZstdDecompress({ chunkSize: CHUNK, params: { [constants.ZSTD_d_windowLogMax]: WINDOW_LOG } });
  const file = createReadStream(path, { highWaterMark: CHUNK });
  // a failure of either side ends the other, and is thrown to the reader
  const fed = pipeline(file, zstd, { signal: opts.signal });
  fed.catch(() => undefined); // awaited below
  try {
    for await (const piece of zstd as AsyncIterable<Buffer>) {
      sum.add(piece);
      opts.onBytes?.(piece.length);
      if (sum.size > stated.size) throw corrupt(`a blob holds more than the ${stated.size} bytes it should`);
      yield piece;
    }
    await fed;
  } catch (error) {
    opts.signal?.throwIfAborted();
    const code = (error as NodeJS.ErrnoException).code ?? "";
    if (/^(ZSTD_|Z_)/.test(code)) throw corrupt("a blob cannot be decompressed", error);
    throw error;
  } finally {
    zstd.destroy();
    file.destroy();
  }
  checkSum(sum.sum(), stated, "a blob holds");
}

export function checkSum(found: Sum, stated: Sum, what: string): void {
  if (found.size !== stated.size) throw corrupt(`${what} ${found.size} bytes instead of ${stated.size}`);
  if (found.digest !== stated.digest) throw corrupt(`${what} ${found.digest} instead of ${stated.digest}`);
}

export function corrupt(why: string, cause?: unknown): ForkdError {
  return new ForkdError("PACK_CORRUPT", `Cannot use this pack: ${why}.`, { cause });
}

/** Reports a full disk as NO_SPACE */
export function writeFailure(error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (code !== "ENOSPC" && code !== "EDQUOT") return error;
  return new ForkdError("NO_SPACE", "Cannot write this pack: the disk is full.", { cause: error });
}

/** SHA-256 and size of a stream */
export class Summer {
  size = 0;
  readonly #hash: Hash = createHash("sha256");

  add(piece: Uint8Array): void {
    this.#hash.update(piece);
    this.size += piece.length;
  }

  sum(): Sum {
    return { digest: `sha256:${this.#hash.digest("hex")}`, size: this.size };
  }
}
