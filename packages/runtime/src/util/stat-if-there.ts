// `stat` of a path that may not exist.

import type { Stats } from "node:fs";
import { stat } from "node:fs/promises";

/** Undefined when the path does not exist */
export async function statIfThere(path: string): Promise<Stats | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
