// Reserved disk space for the journal: without it a daemon could not start on a full disk to free space.

import { rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { freeBytes } from "@forkd/runtime/host/free-space";

const BYTES = 4 * 1024 * 1024;
const FILE = "state.reserve";

/** Frees the reserve if the disk is almost full */
export async function releaseReserve(folder: string): Promise<void> {
  if ((await freeBytes(folder)) < BYTES) await rm(join(folder, FILE), { force: true });
}

/** Creates the reserve if the disk has enough space */
export async function keepReserve(folder: string): Promise<void> {
  const path = join(folder, FILE);
  if ((await freeBytes(folder)) < 8 * BYTES || (await sizeOf(path)) === BYTES) return;
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
