// Waits until written data is on disk (fsync).

import { open, readdir } from "node:fs/promises";
import { join } from "node:path";

/** For a file: its content. For a folder: its entries, as after a rename or a removal */
export async function syncPath(path: string): Promise<void> {
  await using file = await open(path, "r");
  await file.sync();
}

/** A folder and everything in it, except symbolic links */
export async function syncTree(dir: string): Promise<void> {
  for (const entry of await readdir(dir, { recursive: true, withFileTypes: true })) {
    if (entry.isFile() || entry.isDirectory()) await syncPath(join(entry.parentPath, entry.name));
  }
  await syncPath(dir);
}
