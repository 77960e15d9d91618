// Half-made things: a folder of its own for each piece of work, removed with it, and swept when its owner died.

import { randomBytes } from "node:crypto";
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Home } from "../home.ts";
import { isAlive } from "../util/process-id.ts";
import { claimFolder, folderAgeMs, ownerOf } from "./owner.ts";

/** A folder whose owner file is not yet written is this young at most */
const OWNERLESS_MS = 60_000;

/** Gives a staging folder on the store's file system to `work` and removes it afterwards, whatever happened */
export async function withStaging<T>(home: Home, work: (dir: string) => Promise<T>): Promise<T> {
  await mkdir(home.staging, { recursive: true, mode: 0o700 });
  const dir = join(home.staging, randomBytes(8).toString("hex"));
  await mkdir(dir, { mode: 0o700 });
  try {
    await claimFolder(dir);
    return await work(dir);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** Removes staging folders whose owner is gone; returns how many */
export async function sweepStaging(home: Home): Promise<number> {
  let removed = 0;
  for (const entry of await readdir(home.staging, { withFileTypes: true })) {
    const dir = join(home.staging, entry.name);
    if (entry.isDirectory() && (await isOwned(dir))) continue;
    await rm(dir, { recursive: true, force: true });
    removed++;
  }
  return removed;
}

async function isOwned(dir: string): Promise<boolean> {
  const owner = await ownerOf(dir);
  return owner === undefined ? (await folderAgeMs(dir)) < OWNERLESS_MS : isAlive(owner);
}
