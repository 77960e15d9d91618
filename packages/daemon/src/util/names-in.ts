// What a folder holds; a folder that is not there holds nothing.

import { readdir } from "node:fs/promises";

export async function namesIn(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}
