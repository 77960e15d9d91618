// The end of a log file that another process writes.

import { constants } from "node:fs";
import { open } from "node:fs/promises";

const TAIL_BYTES = 4096;

/** The last 4 KiB of a file as text, for error messages */
export async function tailOf(path: string): Promise<string> {
  return (await lastBytes(path, TAIL_BYTES)).toString("utf8").trim();
}

/** The end of a file; empty when it does not exist, or when a VMM has replaced it by something that is not a file */
export async function lastBytes(path: string, most: number): Promise<Buffer> {
  try {
    await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const info = await file.stat();
    if (!info.isFile()) return Buffer.alloc(0);
    const buffer = Buffer.alloc(Math.min(info.size, most));
    const { bytesRead } = await file.read(buffer, 0, buffer.length, Math.max(0, info.size - most));
    return buffer.subarray(0, bytesRead);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ELOOP" || code === "ENXIO") return Buffer.alloc(0);
    throw error;
  }
}
