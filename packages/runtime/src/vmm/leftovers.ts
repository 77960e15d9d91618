// Cleanup of VMMs and run folders of a killed owner.

import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { folderAgeMs, ownerOf } from "../host/owner.ts";
import { UNCLAIMED } from "../host/run-dirs.ts";
import { isAlive, startTimeOf, type ProcessId } from "../util/process-id.ts";
import { ENGINE } from "./engine.ts";

/** A folder is unclaimed only while it is being created; an older one is abandoned */
const UNCLAIMED_MS = 60_000;
const GONE_POLL_MS = 10;
const GONE_WITHIN_MS = 5000;

/** Ends the VMMs and removes the folders whose owner has ended; returns the number of VMMs */
export async function sweepRunDirs(run: string, own: string): Promise<number> {
  let ended = 0;
  for (const name of await readdir(run)) {
    const dir = join(run, name);
    if (name.startsWith(UNCLAIMED) && (await folderAgeMs(dir)) > UNCLAIMED_MS) await rm(dir, { recursive: true, force: true });
    if (!name.startsWith("rt-") || dir === own) continue;
    const owner = await ownerOf(dir);
    if (owner && (await isAlive(owner))) continue;
    ended += await endVmmsOf(dir);
    await rm(dir, { recursive: true, force: true });
  }
  return ended;
}

/** Ends every VMM that works in a folder. Checks each again before the kill, because its pid may have been reused */
export async function endVmmsOf(dir: string): Promise<number> {
  let ended = 0;
  for (const vmm of await vmmsOf(dir)) {
    if (!(await isAlive(vmm))) continue;
    process.kill(vmm.pid, "SIGKILL");
    await gone(vmm);
    ended++;
  }
  return ended;
}

/** VMMs that have this folder in their arguments */
export async function vmmsOf(dir: string): Promise<ProcessId[]> {
  const found: ProcessId[] = [];
  for (const entry of await readdir("/proc")) {
    const pid = Number(entry);
    if (!Number.isInteger(pid)) continue;
    const startTime = await startTimeOf(pid);
    if (startTime !== undefined && (await isVmmOf(pid, dir))) found.push({ pid, startTime });
  }
  return found;
}

async function isVmmOf(pid: number, dir: string): Promise<boolean> {
  try {
    const argv = (await readFile(`/proc/${pid}/cmdline`, "utf8")).split("\0");
    return ENGINE.isVmmOf(argv, dir);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ESRCH" || code === "EACCES") return false;
    throw error;
  }
}

async function gone(id: ProcessId): Promise<void> {
  for (let waited = 0; waited < GONE_WITHIN_MS && (await isAlive(id)); waited += GONE_POLL_MS) {
    await new Promise((resolve) => setTimeout(resolve, GONE_POLL_MS));
  }
}

/** Number of files and VMMs in a run folder that should have been removed */
export async function countLeftovers(dir: string): Promise<number> {
  let left = 0;
  try {
    left += (await readdir(dir, { recursive: true })).length + 1;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  return left + (await vmmsOf(dir)).length;
}
