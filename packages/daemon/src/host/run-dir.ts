// Folders for the sockets and logs of running VMs. Each names its owner; what a killed owner left is ended and removed.

import { mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { newId } from "../util/id.ts";
import { isAlive, startTimeOf, type ProcessId } from "../util/process-id.ts";
import { claimFolder, folderAgeMs, ownerOf } from "./owner.ts";

const UNCLAIMED = "new-";
/** A folder is unclaimed only for the moment in which it is made */
const UNCLAIMED_MS = 60_000;
const GONE_POLL_MS = 10;
const GONE_WITHIN_MS = 5000;

/** A new folder that belongs to this process */
export async function makeRunDir(run: string): Promise<string> {
  await mkdir(run, { recursive: true, mode: 0o700 });
  const id = newId("rt");
  const unclaimed = join(run, `${UNCLAIMED}${id}`);
  const dir = join(run, id);
  await mkdir(unclaimed, { mode: 0o700 });
  await claimFolder(unclaimed);
  // only now can a sweep see it: a folder without an owner is an orphan
  await rename(unclaimed, dir);
  return dir;
}

/** Ends the VMMs and removes the folders whose owner is gone; returns how many VMMs there were */
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

/** Ends every VMM that works in a folder. Each is looked at again before the kill: its number may have gone to another process meanwhile */
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

/** A VMM names its own folder in its arguments */
async function vmmsOf(dir: string): Promise<ProcessId[]> {
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
    return (argv[0] ?? "").includes("qemu-system") && argv.some((arg) => arg.startsWith(`guest=${dir}/`) || arg === `guest=${dir}`);
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

/** Files and VMMs of a run folder that should be gone */
export async function countLeftovers(dir: string): Promise<number> {
  let left = 0;
  try {
    left += (await readdir(dir, { recursive: true })).length + 1;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  return left + (await vmmsOf(dir)).length;
}
