// Half-made things: a folder of its own for each piece of work, removed with it, and swept when its owner died.

import { randomBytes } from "node:crypto";
import { mkdir, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Home } from "../home.ts";
import { isAlive, ownProcessId } from "../util/process-id.ts";

const OWNER_FILE = "owner.json";
/** A folder whose owner file is not yet written is this young at most */
const OWNERLESS_MS = 60_000;

/** Gives a staging folder on the store's file system to `work` and removes it afterwards, whatever happened */
export async function withStaging<T>(home: Home, work: (dir: string) => Promise<T>): Promise<T> {
  await mkdir(home.staging, { recursive: true, mode: 0o700 });
  const dir = join(home.staging, randomBytes(8).toString("hex"));
  await mkdir(dir, { mode: 0o700 });
  try {
    await writeFile(join(dir, OWNER_FILE), JSON.stringify(await ownProcessId()));
    return await work(dir);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** Removes staging folders whose owner is gone; returns how many */
export async function sweepStaging(home: Home): Promise<number> {
  let removed = 0;
  for (const name of await readdir(home.staging)) {
    const dir = join(home.staging, name);
    if (await isOwned(dir)) continue;
    await rm(dir, { recursive: true, force: true });
    removed++;
  }
  return removed;
}

async function isOwned(dir: string): Promise<boolean> {
  let text: string;
  try {
    text = await readFile(join(dir, OWNER_FILE), "utf8");
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT") return (await ageMs(dir)) < OWNERLESS_MS;
    if (code === "ENOTDIR") return false;
    throw error;
  }
  const owner = parseOwner(text);
  return owner === undefined ? (await ageMs(dir)) < OWNERLESS_MS : isAlive(owner);
}

function parseOwner(text: string): { pid: number; startTime: string } | undefined {
  try {
    const value = JSON.parse(text) as { pid?: unknown; startTime?: unknown };
    if (typeof value.pid === "number" && typeof value.startTime === "string") return { pid: value.pid, startTime: value.startTime };
  } catch (error) {
    // A half-written owner file is what a crash leaves
    if (!(error instanceof SyntaxError)) throw error;
  }
  return undefined;
}

async function ageMs(dir: string): Promise<number> {
  try {
    return Date.now() - (await stat(dir)).mtimeMs;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
}
