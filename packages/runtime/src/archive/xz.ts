// Unpacks xz with the host's tool: Node has no decoder.

import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { buffer } from "node:stream/consumers";
import { startConfined } from "../host/confined.ts";

/** Unpacks one buffer */
export async function decompressXz(data: Buffer, opts: { signal?: AbortSignal } = {}): Promise<Buffer> {
  const xz = await startConfined(["xz", "--decompress", "--stdout", "--single-stream"], { signal: opts.signal });
  const [output] = await Promise.all([buffer(xz.stdout), pipeline(Readable.from([data]), xz.stdin).catch(() => undefined), xz.done]);
  return output;
}
