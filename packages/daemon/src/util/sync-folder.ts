// Makes renames inside a folder survive a power failure.

import { open } from "node:fs/promises";

export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
