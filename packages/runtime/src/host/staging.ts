// Staging folders for incomplete work. Each is removed with its work, or swept after its owner died.

import { randomBytes } from "node:crypto";
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Home } from "../home.ts";
import { isAlive, ownProcessId } from "../util/process-id.ts";

/** The name contains the owner, so that the folder has an owner from its creation to its removal */
const NAME = /^(\d+)-(\d+)-[0-9a-f]{16}$/;

/** A staging folder on the store's file system, and the function that removes it */
export async function openStaging(home: Home): Promise<{ dir: string; close: () => Promise<void> }> {
  await mkdir(home.staging, { recursive: true, mode: 0o700 });
  const { pid, startTime } = await ownProcessId();
  const dir = join(home.staging, `${pid}-${startTime}-${randomBytes(8).toString("hex")}`);
  await mkdir(dir, { mode: 0o700 });
  return { dir, close: async () => rm(dir, { recursive: true, force: true }) };
}

/** Passes a staging folder to `work` and removes it afterwards, also after a failure */
export async function withStaging<T>(home: Home, work: (dir: string) => Promise<T>): Promise<T> {
  const { dir, close } = await openStaging(home);
  try {
    return await work(dir);
  } finally {
    await close();
  }
}

/** Removes staging folders of processes that have ended; returns how many */
export async function sweepStaging(home: Home): Promise<number> {
  let removed = 0;
  for (const name of await readdir(home.staging)) {
    const [, pid, startTime] = NAME.exec(name) ?? [];
    if (pid !== undefined && startTime !== undefined && (await isAlive({ pid: Number(pid), startTime }))) continue;
    await rm(join(home.staging, name), { recursive: true, force: true });
    removed++;
  }
  return removed;
}
