// Folders for sockets and logs of running VMs. Each records its owner.

import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { newId } from "../util/id.ts";
import { claimFolder } from "./owner.ts";

/** Prefix of a folder without an owner file */
export const UNCLAIMED = "new-";

/** A new folder that belongs to this process */
export async function makeRunDir(run: string): Promise<string> {
  await mkdir(run, { recursive: true, mode: 0o700 });
  const id = newId("rt");
  const unclaimed = join(run, `${UNCLAIMED}${id}`);
  const dir = join(run, id);
  await mkdir(unclaimed, { mode: 0o700 });
  await claimFolder(unclaimed);
  // Rename it only now: the sweep removes folders that have no owner.
  await rename(unclaimed, dir);
  return dir;
}
