// Reads and writes that transfer exactly the requested bytes.

import type { FileHandle } from "node:fs/promises";
import { packInvalid } from "./manifest.ts";

export async function writeAt(file: FileHandle, data: Buffer, offset: number): Promise<void> {
  for (let at = 0; at < data.length;) at += (await file.write(data, at, data.length - at, offset + at)).bytesWritten;
}

export async function readAt(file: FileHandle, into: Buffer, offset: number): Promise<void> {
  for (let at = 0; at < into.length;) {
    const { bytesRead } = await file.read(into, at, into.length - at, offset + at);
    if (bytesRead === 0) throw packInvalid("a file ends too early");
    at += bytesRead;
  }
}
