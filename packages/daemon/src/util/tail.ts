// The end of a log file, for error messages.

import { constants } from "node:fs";
import { open } from "node:fs/promises";

const TAIL_BYTES = 4096;

/** The last 4 KiB of a file as text; empty when there is no file, or something else that a VMM has put in its place */
export async function tailOf(path: string): Promise<string> {
  try {
    await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const info = await file.stat();
    if (!info.isFile()) return "";
    const buffer = Buffer.alloc(Math.min(info.size, TAIL_BYTES));
    await file.read(buffer, 0, buffer.length, Math.max(0, info.size - TAIL_BYTES));
    return buffer.toString("utf8").trim();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ELOOP" || code === "ENXIO") return "";
    throw error;
  }
}
