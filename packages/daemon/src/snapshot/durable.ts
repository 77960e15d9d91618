// Whether a snapshot's files have reached the disk. Until they have, a mark in its folder names the boot of the host in whose
// page cache they are: after a power cut the mark is still there, and the snapshot is refused instead of being half of itself.

import { open, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { bootId } from "../util/boot-id.ts";
import { syncFolder } from "../util/sync-folder.ts";

const MARK = "unsynced";

export async function markUnsynced(dir: string): Promise<void> {
  await writeFile(join(dir, MARK), await bootId(), { mode: 0o600 });
}

/** "lost": the host went down before it was on disk */
export async function durability(dir: string): Promise<"synced" | "unsynced" | "lost"> {
  try {
    const boot = await readFile(join(dir, MARK), "utf8");
    return boot === (await bootId()) ? "unsynced" : "lost";
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "synced";
    throw error;
  }
}

/** Waits for the disk, then takes the mark away */
export async function syncSnapshot(dir: string, files: readonly string[]): Promise<void> {
  for (const path of files) {
    await using file = await open(path, "r");
    await file.sync();
  }
  await syncFolder(dir);
  await syncFolder(dirname(dir));
  await rm(join(dir, MARK), { force: true });
}
