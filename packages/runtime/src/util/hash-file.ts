// SHA-256 of a file, streamed.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";

export async function sha256File(path: string, signal?: AbortSignal): Promise<{ hex: string; bytes: number }> {
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20, signal })) {
    hash.update(chunk as Buffer);
    bytes += (chunk as Buffer).length;
  }
  return { hex: hash.digest("hex"), bytes };
}
