// Host-side view of VMs: processes, memory mappings, mounts and files of the store.

import { readdirSync, readFileSync, readlinkSync, type Dirent } from "node:fs";
import { readdir, readFile, readlink } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { patience } from "./patience.ts";

import type { Home, Sandbox } from "@forkd/runtime";

const POLL_MS = 20;

/** Names of everything that a test could leave behind */
export type Traces = { staging: string[]; flat: string[]; disks: string[]; snapshots: string[]; tags: string[]; mounts: string[] };

/** Takes a listing that a later listing is compared with */
export async function tracesOf(home: Home): Promise<Traces> {
  const mounts = (await readFile("/proc/mounts", "utf8")).split("\n");
  return {
    staging: await namesIn(home.staging),
    flat: await flatImages(home),
    disks: await disksOfVms(home),
    snapshots: (await namesIn(home.snapshots)).filter((name) => name !== "tags"),
    tags: await namesIn(`${home.snapshots}/tags`),
    // only mounts of this store: other programs may mount file systems at the same time
    mounts: mounts.filter((line) => [home.root, home.run].some((part) => line.includes(part))),
  };
}

/** Names of all flat memory images in the store */
export async function flatImages(home: Home): Promise<string[]> {
  const entries = await entriesBelow(home.flat);
  return entries
    .filter((entry) => entry.name.includes(".ram"))
    .map(({ name }) => name)
    .toSorted();
}

/** Names of all disk files of sandboxes in the store. Those of a zygote stay as long as the zygote */
export async function disksOfVms(home: Home): Promise<string[]> {
  const entries = await entriesBelow(home.vms);
  return entries
    .filter((entry) => entry.isFile() && entry.name !== "owner.json" && !ofZygote(entry))
    .map(({ name }) => name)
    .toSorted();
}

/** Names of all disk files of zygotes in the store */
export async function disksOfZygotes(home: Home): Promise<string[]> {
  return (await entriesBelow(home.vms)).filter((entry) => entry.isFile() && ofZygote(entry)).map(({ name }) => name);
}

function ofZygote({ parentPath }: Dirent): boolean {
  return parentPath.split("/").some((part) => part.startsWith("zy-"));
}

/** Lists a folder recursively, and starts again if an entry is removed meanwhile */
export async function entriesBelow(dir: string): Promise<Dirent[]> {
  for (;;) {
    try {
      return await readdir(dir, { recursive: true, withFileTypes: true });
    } catch (error) {
      const { code, path } = error as NodeJS.ErrnoException;
      if (code !== "ENOENT" || path === dir) throw error;
    }
  }
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

/** Waits until all processes have ended and returns those still running at the deadline */
export async function waitUntilGone(pids: readonly number[], withinMs = patience()): Promise<number[]> {
  const deadline = Date.now() + withinMs;
  while (Date.now() < deadline && pids.some(isRunning)) await sleep(POLL_MS);
  return pids.filter(isRunning);
}

/** Pids of the VMMs whose folders are in this run folder, without zygotes */
export function vmmsOf(runDir: string): number[] {
  return processIds()
    .filter((pid) => isVmmOf(pid, runDir) && !isZygote(pid))
    .toSorted((a, b) => a - b);
}

/** Pids of the zygotes whose folders are in this run folder */
export function zygotesOf(runDir: string): number[] {
  return processIds().filter((pid) => isVmmOf(pid, runDir) && isZygote(pid));
}

/** Id of the VM of a VMM, from the path of its log: a clone has the same arguments as its zygote */
export function vmOf(pid: number): string | undefined {
  try {
    return basename(dirname(readlinkSync(`/proc/${pid}/fd/1`)));
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

/** Whether the VMM is a zygote, which others are cloned from. The pool starts and ends zygotes at any time */
export function isZygote(pid: number): boolean {
  return vmOf(pid)?.startsWith("zy-") ?? false;
}

/** Layer files that the VMM has open for writing */
export async function writableLayers({ vm: { pid } }: Sandbox): Promise<number> {
  const open = (await readdir(`/proc/${pid}/fd`)).map(async (fd) => {
    const [path, info] = await Promise.all([readlink(`/proc/${pid}/fd/${fd}`), readFile(`/proc/${pid}/fdinfo/${fd}`, "utf8")]);
    return path.includes(".qcow2") && Number.parseInt(/^flags:\s+(\d+)$/m.exec(info)?.[1] ?? "0", 8) % 4 !== 0 ? path : undefined;
  });
  return new Set((await Promise.all(open)).filter((path) => path !== undefined)).size;
}

/** Pid of the next VMM in this run folder, as soon as the process has executed QEMU, long before its guest can answer */
export async function nextVmm(runDir: string, signal: AbortSignal): Promise<number> {
  const known = new Set(processIds().filter((pid) => isVmmOf(pid, runDir)));
  const strangers = new Map<number, string>();
  while (!signal.aborted) {
    for (const pid of processIds()) {
      if (known.has(pid)) continue;
      if (isVmmOf(pid, runDir)) {
        // a clone has the log of its zygote until it has put its own in place
        if (!isZygote(pid)) return pid;
        continue;
      }
      // A process with the same arguments as in the last scan will not execute QEMU any more; in the middle of exec it has none
      const argv = cmdlineOf(pid);
      if (argv !== "" && strangers.get(pid) === argv && !argv.includes("forkd-warden")) known.add(pid);
      strangers.set(pid, argv);
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  throw new Error("no VMM was started");
}

/** Resident memory of a process in bytes: now, and the peak since its start or the last reset of the mark */
export function residentMemory(pid: number): { bytes: number; peakBytes: number } {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const field = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]) * 1024;
  return { bytes: field("VmRSS"), peakBytes: field("VmHWM") };
}

/** Direct children of this process that run the program */
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

/** Mappings of a file in a process, with permissions such as "rw-p" */
export async function mappingsOf(pid: number, path: string): Promise<{ start: bigint; permissions: string }[]> {
  const lines = (await readFile(`/proc/${pid}/maps`, "utf8")).split("\n").filter((line) => line.endsWith(path));
  return lines.map((line) => {
    const [range = "", permissions = ""] = line.split(" ");
    return { start: BigInt(`0x${range.split("-")[0]}`), permissions };
  });
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
