// Room for the journal of a daemon that starts on a full disk: without it nobody could start the one that frees space.

import { rm, stat, statfs, writeFile } from "node:fs/promises";
import { join } from "node:path";

const BYTES = 4 * 1024 * 1024;
const FILE = "state.reserve";

/** Gives the room back to the file system when there is little else */
export async function releaseReserve(folder: string): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize < BYTES) await rm(join(folder, FILE), { force: true });
}

/** Takes the room when there is enough; a failure only means that there is none */
export async function keepReserve(folder: string): Promise<void> {
  const path = join(folder, FILE);
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize < 8 * BYTES || (await sizeOf(path)) === BYTES) return;
  await writeFile(path, Buffer.alloc(BYTES, 1), { mode: 0o600 });
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
}
