// Atomic file writes: a reader sees the complete file or none.

import { rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { syncPath } from "./sync-path.ts";

/** Writes beside the target and renames over it; "durable" also survives a power failure */
export async function writeFileAtomic(path: string, content: string, safety: "durable" | "quick" = "durable"): Promise<void> {
  const temporary = `${path}.${process.pid}.${Math.random().toString(36).slice(2)}.tmp`;
  try {
    await writeFile(temporary, content, { mode: 0o600, flush: safety === "durable" });
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  if (safety === "durable") await syncPath(dirname(path));
}
