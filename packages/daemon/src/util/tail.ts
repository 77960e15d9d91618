// The end of a log file, for error messages.

import { open } from "node:fs/promises";

const TAIL_BYTES = 4096;

/** The last 4 KiB of a file as text; empty when there is no file */
export async function tailOf(path: string): Promise<string> {
  try {
    await using file = await open(path, "r");
    const { size } = await file.stat();
    const buffer = Buffer.alloc(Math.min(size, TAIL_BYTES));
    await file.read(buffer, 0, buffer.length, Math.max(0, size - TAIL_BYTES));
    return buffer.toString("utf8").trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw error;
  }
}
