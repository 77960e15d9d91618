// Local bytes to upload, with their digest.

import { createReadStream } from "node:fs";
import { digestOf } from "../util/digest.ts";

const READ_BYTES = 256 * 1024;

export type LocalBlob = {
  digest: string;
  size: number;
  /** from `start` to before `end` */
  open: (start: number, end: number) => AsyncIterable<Uint8Array>;
};

export function fileBlob(path: string, { digest, size }: { digest: string; size: number }): LocalBlob {
  return { digest, size, open: (start, end) => partOfFile(path, start, end) };
}

export function bufferBlob(data: Buffer): LocalBlob {
  return { digest: digestOf(data), size: data.length, open: (start, end) => partOfBuffer(data, start, end) };
}

async function* partOfFile(path: string, start: number, end: number): AsyncGenerator<Uint8Array> {
  if (start >= end) return;
  for await (const chunk of createReadStream(path, { start, end: end - 1, highWaterMark: READ_BYTES })) yield chunk as Buffer;
}

async function* partOfBuffer(data: Buffer, start: number, end: number): AsyncGenerator<Uint8Array> {
  if (start < end) yield data.subarray(start, end);
}
