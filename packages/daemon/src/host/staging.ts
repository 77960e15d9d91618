// Half-made things: a folder of its own for each piece of work, removed with it, and swept when its owner died.

import { randomBytes } from "node:crypto";
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Home } from "../home.ts";
import { isAlive, ownProcessId } from "../util/process-id.ts";

/** The owner is in the name, so that at no moment a folder is nobody's: while it is made, and while it is removed */
const NAME = /^(\d+)-(\d+)-[0-9a-f]{16}$/;

/** A staging folder on the store's file system, and what removes it */
export async function openStaging(home: Home): Promise<{ dir: string; close: () => Promise<void> }> {
  await mkdir(home.staging, { recursive: true, mode: 0o700 });
  const { pid, startTime } = await ownProcessId();
  const dir = join(home.staging, `${pid}-${startTime}-${randomBytes(8).toString("hex")}`);
  await mkdir(dir, { mode: 0o700 });
  return { dir, close: async () => rm(dir, { recursive: true, force: true }) };
}

/** Gives a staging folder to `work` and removes it afterwards, whatever happened */
export async function withStaging<T>(home: Home, work: (dir: string) => Promise<T>): Promise<T> {
  const { dir, close } = await openStaging(home);
  try {
    return await work(dir);
  } finally {
    await close();
  }
}

/** Removes staging folders whose owner is gone; returns how many */
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
