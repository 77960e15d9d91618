// The block device under a folder.

import { readFile, realpath, stat } from "node:fs/promises";
import { dirname, join } from "node:path";

/** MAJOR:MINOR of the whole disk, on which limits are set; null where there is none: tmpfs, overlays, file systems across several disks */
export async function diskOf(folder: string, blocks: string): Promise<string | null> {
  const { dev } = await stat(folder, { bigint: true });
  const major = ((dev >> 8n) & 0xfffn) | ((dev >> 32n) & ~0xfffn);
  const minor = (dev & 0xffn) | ((dev >> 12n) & ~0xffn);
  try {
    const device = await realpath(join(blocks, `${major}:${minor}`));
    const isPartition = (await readOrNull(join(device, "partition"))) !== null;
    return (await readFile(join(isPartition ? dirname(device) : device, "dev"), "utf8")).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

async function readOrNull(path: string): Promise<string | null> {
  return readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
}
