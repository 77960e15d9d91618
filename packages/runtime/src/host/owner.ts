// Owner of a folder: the process that made it. Folders of killed processes are recognised by it.

import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ownProcessId, type ProcessId } from "../util/process-id.ts";

const OWNER_FILE = "owner.json";

/** Records this process as the owner of a folder */
export async function claimFolder(dir: string): Promise<void> {
  await writeFile(join(dir, OWNER_FILE), JSON.stringify(await ownProcessId()), { mode: 0o600 });
}

/** undefined for a folder without an owner, or with an incomplete owner file, as a crash leaves it */
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

/** 0 when the process does not exist */
export async function folderAgeMs(dir: string): Promise<number> {
  try {
    return Date.now() - (await stat(dir)).mtimeMs;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
}
