// Finds and removes all files of forkd outside of its checkout.

import { lstat, readdir, rm, rmdir } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { codeOf, failure } from "../errors.ts";

import type { Stats } from "node:fs";
import type { Paths } from "./paths.ts";

/** Entries of the store, by name: other files in FORKD_HOME are kept */
const STORE = /^(images|guest-kernels|snapshots|flat|vms|staging|cache|keys|state\.(db.*|reserve)|config\.json|audit\.log.*)$/;
/** In the run folder */
const RUN = /^(daemon(\.lock.*|\.log)?|forkd\.sock|(rt|new-rt)-[a-z2-7]{16})$/;
const BLOCK_BYTES = 512;

export type Found = { path: string; bytes: number };

export type Plan = {
  /** in the order of their removal */
  folders: { path: string; entries: Found[]; /** files that forkd did not create */ foreign: string[] }[];
};

/** Reads only. Missing folders are left out */
export async function planOf(paths: Paths, env: NodeJS.ProcessEnv = process.env): Promise<Plan> {
  const caches = env["XDG_CACHE_HOME"] || join(homedir(), ".cache");
  const folders: Plan["folders"] = [];
  for (const [path, isOwn] of [
    [paths.run, RUN],
    [paths.home, STORE],
    [join(caches, "forkd"), /./],
    [join(caches, "forkd-examples"), /./],
  ] as const) {
    const names = await namesIn(path);
    if (!names) continue;
    const own = names.filter((name) => isOwn.test(name));
    const entries = await Promise.all(own.map(async (name) => ({ path: join(path, name), bytes: await bytesOf(join(path, name)) })));
    folders.push({ path, entries, foreign: names.filter((name) => !isOwn.test(name)).map((name) => join(path, name)) });
  }
  return { folders };
}

/** Removes the found files, and each folder that is then empty */
export async function remove({ folders }: Plan): Promise<void> {
  for (const { path, entries, foreign } of folders) {
    for (const entry of entries) await rm(entry.path, { recursive: true, force: true });
    if (foreign.length === 0) await removeFolder(path);
  }
}

/** Refuses folders of other users, and links, which may point anywhere */
async function namesIn(path: string): Promise<string[] | undefined> {
  const info = await statOf(path);
  if (!info) return undefined;
  const uid = process.getuid?.() ?? 0;
  if (!info.isDirectory() || info.uid !== uid)
    throw failure(
      "HOME_UNSAFE",
      `Cannot remove ${path}: it is ${info.isDirectory() ? `a folder of uid ${info.uid}` : "no folder"}.`,
      "Nothing was changed. Look at it, and remove it by hand.",
    );
  return (await readdir(path)).toSorted();
}

async function removeFolder(path: string): Promise<void> {
  try {
    await rmdir(path);
  } catch (error) {
    // it is no longer empty, or a mount point
    if (!["ENOTEMPTY", "EBUSY", "ENOENT"].includes(codeOf(error) ?? "")) throw error;
  }
}

/** Allocated disk space: memory images have holes */
async function bytesOf(path: string): Promise<number> {
  const info = await statOf(path);
  if (!info) return 0;
  const own = info.blocks * BLOCK_BYTES;
  if (!info.isDirectory()) return own;
  const names = await readdir(path).catch((error: unknown) => {
    if (codeOf(error) === "ENOENT") return [];
    throw error;
  });
  const inside = await Promise.all(names.map(async (name) => bytesOf(join(path, name))));
  return inside.reduce((sum, bytes) => sum + bytes, own);
}

async function statOf(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}
