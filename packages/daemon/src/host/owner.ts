// Whose folder it is: what a process that was killed has left is known by this.

import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ownProcessId, type ProcessId } from "../util/process-id.ts";

const OWNER_FILE = "owner.json";

/** Makes a folder this process's own */
export async function claimFolder(dir: string): Promise<void> {
  await writeFile(join(dir, OWNER_FILE), JSON.stringify(await ownProcessId()), { mode: 0o600 });
}

/** undefined for a folder that nobody has claimed, or not to the end: a half-written file is what a crash leaves */
export async function ownerOf(dir: string): Promise<ProcessId | undefined> {
  try {
    const owner = JSON.parse(await readFile(join(dir, OWNER_FILE), "utf8")) as Partial<ProcessId>;
    return typeof owner.pid === "number" && typeof owner.startTime === "string"
      ? { pid: owner.pid, startTime: owner.startTime }
      : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT" || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** 0 for one that is gone */
export async function folderAgeMs(dir: string): Promise<number> {
  try {
    return Date.now() - (await stat(dir)).mtimeMs;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
}
