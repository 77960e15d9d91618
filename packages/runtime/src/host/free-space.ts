// Free space of a file system.

import { statfs } from "node:fs/promises";

const MIB = 1024 * 1024;
/** Below this a VMM's disk counts as full: a VMM allocates many pages at a time, and space that is freed later does not help it */
const FULL_BYTES = 32 * MIB;

/** Of the file system of a file or folder */
export async function freeBytes(path: string): Promise<number> {
  const { bavail, bsize } = await statfs(path);
  return bavail * bsize;
}

/** Whether a file has no room to grow; false for a file that does not exist */
export async function isFull(path: string): Promise<boolean> {
  try {
    return (await freeBytes(path)) < FULL_BYTES;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
    throw error;
  }
}
