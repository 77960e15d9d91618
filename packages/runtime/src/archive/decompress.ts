// Decompresses a layer or an archive: detects the format by its first bytes, and refuses decompression bombs.

import { createHash } from "node:crypto";
import type { Readable } from "node:stream";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { ForkdError, messageOf } from "../errors.ts";
import { startConfined, type ConfinementPolicy } from "../host/confined.ts";

/** File systems do not reach this ratio */
const MAX_RATIO = 1000;
/** Below this size a high ratio is allowed: empty files and sparse databases compress well */
const RATIO_FREE_BYTES = 100 * 1024 ** 2;

/** Unpacked size of an image, summed over its layers */
export type Budget = { maxBytes: number; unpacked: number };

export type UnpackOpts = {
  /** name of the layer or archive in errors */
  label: string;
  budget: Budget;
  /** expected digest of the unpacked bytes, `sha256:…` */
  diffId?: string | undefined;
  /** expected digest and size of the packed bytes */
  digest?: string | undefined;
  size?: number | undefined;
  confinement?: ConfinementPolicy | undefined;
  signal?: AbortSignal | undefined;
};

/** The unpacked bytes of `source`; digests are compared at the end */
export async function* unpack(source: Readable, opts: UnpackOpts): AsyncGenerator<Buffer> {
  const packed = { bytes: 0 };
  const hash = opts.diffId === undefined ? undefined : createHash("sha256");
  let unpacked = 0;
  try {
    for await (const chunk of inflate(countPacked(source, packed, opts), opts)) {
      opts.signal?.throwIfAborted();
      unpacked += chunk.length;
      opts.budget.unpacked += chunk.length;
      if (opts.budget.unpacked > opts.budget.maxBytes)
        throw new ForkdError("IMAGE_TOO_LARGE", `Refused ${opts.label}: the image unpacks to more than ${opts.budget.maxBytes} bytes.`);
      if (unpacked > RATIO_FREE_BYTES && unpacked > packed.bytes * MAX_RATIO) {
        throw new ForkdError(
          "IMAGE_TOO_LARGE",
          `Refused ${opts.label}: ${packed.bytes} bytes unpack to more than ${unpacked}, as in an archive made to fill disks.`,
          { hint: "The image was not stored." },
        );
      }
      hash?.update(chunk);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof ForkdError || opts.signal?.aborted) throw error;
    throw new ForkdError("IMAGE_INVALID", `Cannot unpack ${opts.label}: ${messageOf(error)}.`, { cause: error });
  } finally {
    source.destroy();
  }
  if (hash !== undefined && `sha256:${hash.digest("hex")}` !== opts.diffId) {
    throw new ForkdError(
      "DIGEST_MISMATCH",
      `Refused ${opts.label}: its unpacked content does not have the digest the image configuration states.`,
    );
  }
}

async function* countPacked(source: Readable, packed: { bytes: number }, opts: UnpackOpts): AsyncGenerator<Buffer> {
  const hash = opts.digest === undefined ? undefined : createHash("sha256");
  for await (const chunk of source as AsyncIterable<Buffer>) {
    packed.bytes += chunk.length;
    if (opts.size !== undefined && packed.bytes > opts.size) break;
    hash?.update(chunk);
    yield chunk;
  }
  if (opts.size !== undefined && packed.bytes !== opts.size)
    throw new ForkdError("DIGEST_MISMATCH", `Refused ${opts.label}: it is not ${opts.size} bytes long as its descriptor states.`);
  if (hash !== undefined && `sha256:${hash.digest("hex")}` !== opts.digest)
    throw new ForkdError("DIGEST_MISMATCH", `Refused ${opts.label}: its content does not have the digest it is named by.`);
}

async function* inflate(source: AsyncGenerator<Buffer>, opts: UnpackOpts): AsyncGenerator<Buffer> {
  const { head, all } = await peek(source);
  const format = compressionOf(head);
  if (format === "none") yield* all;
  else if (format === "xz") yield* throughXz(all, opts);
  else yield* through(all, format === "gzip" ? createGunzip() : createZstdDecompress());
}

export function compressionOf(head: Buffer): "none" | "gzip" | "zstd" | "xz" {
  if (head[0] === 0x1f && head[1] === 0x8b) return "gzip";
  if (head.length >= 4 && head.readUInt32LE(0) === 0xfd2fb528) return "zstd";
  // zstd streams may begin with a skippable frame
  if (head.length >= 4 && (head.readUInt32LE(0) & 0xfffffff0) >>> 0 === 0x184d2a50) return "zstd";
  if (head.subarray(0, 6).toString("latin1") === "\xfd7zXZ\0") return "xz";
  return "none";
}

async function peek(source: AsyncGenerator<Buffer>): Promise<{ head: Buffer; all: AsyncGenerator<Buffer> }> {
  let head = Buffer.alloc(0);
  let ended = false;
  while (head.length < 6 && !ended) {
    const next = await source.next();
    if (next.done) ended = true;
    else head = Buffer.concat([head, next.value]);
  }
  async function* all(): AsyncGenerator<Buffer> {
    if (head.length > 0) yield head;
    yield* source;
  }
  return { head, all: all() };
}

async function* through(source: AsyncGenerator<Buffer>, codec: Readable & NodeJS.WritableStream): AsyncGenerator<Buffer> {
  const feeding = feed(source, codec).catch((error: unknown) => {
    codec.destroy(error instanceof Error ? error : new Error(String(error)));
  });
  try {
    for await (const chunk of codec as AsyncIterable<Buffer>) yield chunk;
  } finally {
    codec.destroy();
    await feeding;
  }
}

async function* throughXz(source: AsyncGenerator<Buffer>, opts: UnpackOpts): AsyncGenerator<Buffer> {
  const xz = await startConfined(["xz", "--decompress", "--stdout"], { signal: opts.signal, confinement: opts.confinement });
  let inputError: Error | undefined;
  const feeding = feed(source, xz.stdin).catch((error: unknown) => {
    inputError = error instanceof Error ? error : new Error(String(error));
    xz.kill();
  });
  try {
    for await (const chunk of xz.stdout as AsyncIterable<Buffer>) yield chunk;
    await feeding;
    if (inputError !== undefined) throw inputError;
    await xz.done;
  } finally {
    xz.kill();
    await xz.done.catch(() => undefined);
    await feeding;
  }
}

/** Writes with backpressure; when the sink closes early it stops, and the reader of the sink's other side gets the reason */
async function feed(source: AsyncGenerator<Buffer>, sink: NodeJS.WritableStream & { destroyed?: boolean }): Promise<void> {
  let closed = false;
  let wake: (() => void) | undefined;
  const onClose = (): void => {
    closed = true;
    wake?.();
  };
  const onDrain = (): void => wake?.();
  sink.on("close", onClose).on("error", onClose).on("drain", onDrain);
  for await (const chunk of source) {
    if (closed || sink.destroyed) return;
    if (!sink.write(chunk)) {
      await new Promise<void>((resolve) => {
        wake = resolve;
        if (closed) resolve();
      });
    }
  }
  sink.end();
}
