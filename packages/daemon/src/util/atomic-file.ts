// Files that appear whole or not at all.

import { rename, rm, writeFile } from "node:fs/promises";

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
}
