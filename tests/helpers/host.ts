// What the host shows of our VMs: processes, mappings, mounts, files of the store.

import { readdirSync, readFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

import type { Home } from "@forkd/daemon";

const POLL_MS = 20;

/** Everything that may be left behind by a mistake */
export type Traces = { staging: string[]; flat: string[]; disks: string[]; snapshots: string[]; tags: string[]; mounts: string[] };

/** The names of what is there now, to be compared with what is there later */
export async function tracesOf(home: Home): Promise<Traces> {
  const mounts = (await readFile("/proc/mounts", "utf8")).split("\n");
  return {
    staging: await namesIn(home.staging),
    flat: await flatImages(home),
    disks: await disksOfVms(home),
    snapshots: (await namesIn(home.snapshots)).filter((name) => name !== "tags"),
    tags: await namesIn(`${home.snapshots}/tags`),
    // only ours: others may mount things on this machine meanwhile
    mounts: mounts.filter((line) => [home.root, home.run].some((part) => line.includes(part))),
  };
}

/** Names of all flat memory images, whoever they belong to */
export async function flatImages(home: Home): Promise<string[]> {
  const entries = await readdir(home.flat, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.name.includes(".ram"))
    .map(({ name }) => name)
    .toSorted();
}

/** Files of the disks of all VMs, whoever they belong to */
export async function disksOfVms(home: Home): Promise<string[]> {
  const entries = await readdir(home.vms, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && entry.name !== "owner.json")
    .map(({ name }) => name)
    .toSorted();
}

export async function namesIn(dir: string): Promise<string[]> {
  try {
    return (await readdir(dir)).toSorted();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

/** Whether the process exists and is not a zombie */
export function isRunning(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2, stat.lastIndexOf(")") + 3) !== "Z";
  } catch (error) {
    if (isGone(error)) return false;
    throw error;
  }
}

/** Waits until none of the processes runs; gives back those that still do when the time is over */
export async function waitUntilGone(pids: readonly number[], withinMs: number): Promise<number[]> {
  const deadline = Date.now() + withinMs;
  while (Date.now() < deadline && pids.some(isRunning)) await sleep(POLL_MS);
  return pids.filter(isRunning);
}

/** Process ids of the VMMs whose folder lies in this run folder */
export function vmmsOf(runDir: string): number[] {
  return processIds()
    .filter((pid) => isVmmOf(pid, runDir))
    .toSorted((a, b) => a - b);
}

/** The next VMM that starts in this run folder; it is caught as soon as it is QEMU, long before its guest can answer */
export async function nextVmm(runDir: string, signal: AbortSignal): Promise<number> {
  const known = new Set(processIds().filter((pid) => isVmmOf(pid, runDir)));
  const strangers = new Map<number, string>();
  while (!signal.aborted) {
    for (const pid of processIds()) {
      if (known.has(pid)) continue;
      if (isVmmOf(pid, runDir)) return pid;
      // a process that has not changed what it runs since the last look will not become ours
      const argv = cmdlineOf(pid);
      if (strangers.get(pid) === argv && !argv.includes("forkd-warden")) known.add(pid);
      strangers.set(pid, argv);
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  throw new Error("no VMM was started");
}

/** Children of this very process whose program has this name */
export function ownChildren(program: string): number[] {
  return processIds().filter((pid) => {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
      const parent = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
      return parent === process.pid && cmdlineOf(pid).includes(program);
    } catch (error) {
      if (isGone(error)) return false;
      throw error;
    }
  });
}

/** Permissions of the mappings of a file in a process, such as "rw-p" */
export async function mappingsOf(pid: number, path: string): Promise<string[]> {
  const lines = (await readFile(`/proc/${pid}/maps`, "utf8")).split("\n");
  return lines.filter((line) => line.endsWith(path)).map((line) => line.split(" ")[1] ?? "");
}

export function processIds(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

function isVmmOf(pid: number, runDir: string): boolean {
  const argv = cmdlineOf(pid);
  return (argv.split("\0")[0] ?? "").includes("qemu-system") && argv.includes(`${runDir}/`);
}

export function cmdlineOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch (error) {
    if (isGone(error)) return "";
    throw error;
  }
}

function isGone(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOENT" || code === "ESRCH";
}
