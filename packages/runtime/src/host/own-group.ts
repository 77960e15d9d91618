// The control group of this process, and the controllers that it can delegate to groups below.

import { constants } from "node:fs";
import { access, mkdir, readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { messageOf } from "../errors.ts";

export const CONTROLLERS = ["memory", "cpu", "pids", "io"] as const;
export type Controller = (typeof CONTROLLERS)[number];

/** Group of the daemon, the warden and VMMs without limits: cgroup v2 allows no processes in a group that has groups with controllers below it */
const LEAF = "forkd-daemon";

/** Paths at which the kernel shows groups and processes; tests have their own */
export type GroupPlaces = {
  root: string;
  proc: string;
  /** block devices by number */
  blocks: string;
};

export const HOST_PLACES: GroupPlaces = { root: "/sys/fs/cgroup", proc: "/proc", blocks: "/sys/dev/block" };

export type OwnGroup = {
  /** null: no usable group */
  path: string | null;
  controllers: readonly Controller[];
  /** why some controllers cannot be delegated; null: all can */
  reason: string | null;
};

/** Read-only inspection. @param parents processes whose children may be moved, in addition to this process and its children */
export async function lookAtOwnGroup(places: GroupPlaces, parents: () => Promise<number[]> = async () => []): Promise<OwnGroup> {
  const group = await groupOf("self", places);
  if (group === null || (await readText(join(places.root, "cgroup.controllers"))) === "")
    return nothing("this host does not use cgroup v2 alone");
  const path = basename(group) === LEAF ? dirname(group) : group;
  if (!(await isWritable(path))) return nothing(`the control group ${path} is not delegated to this user`);
  const present = words(await readText(join(path, "cgroup.controllers")));
  const controllers = CONTROLLERS.filter((controller) => present.includes(controller));
  if (controllers.length === 0) return nothing(`the control group ${path} has none of the controllers ${CONTROLLERS.join(", ")}`);
  const strangers = await strangersIn(path, places, parents);
  if (strangers.length > 0) return nothing(`other processes (${strangers.slice(0, 3).join(", ")}) are in the control group ${path}`);
  const missing = CONTROLLERS.filter((controller) => !controllers.includes(controller));
  return { path, controllers, reason: missing.length === 0 ? null : `the control group ${path} lacks ${missing.join(", ")}` };
}

/** Folder of a process's group; null without cgroup v2, or when the process does not exist */
export async function groupOf(pid: number | "self", { root, proc }: GroupPlaces): Promise<string | null> {
  const lines = (await readText(join(proc, String(pid), "cgroup"))).split("\n");
  const name = lines.find((line) => line.startsWith("0::"))?.slice(3);
  return name === undefined ? null : join(root, name === "/" ? "" : name);
}

/** Moves forkd's processes into the leaf group and delegates the controllers; throws the kernel's error */
export async function openOwnGroup(path: string, controllers: readonly Controller[]): Promise<void> {
  const leaf = join(path, LEAF);
  await mkdir(leaf, { recursive: true });
  for (const pid of words(await readText(join(path, "cgroup.procs")))) {
    await writeFile(join(leaf, "cgroup.procs"), pid).catch((error: NodeJS.ErrnoException) => {
      // the process has ended
      if (error.code !== "ESRCH") throw error;
    });
  }
  await giveOn(path, controllers);
}

/** Enables controllers for the groups below */
export async function giveOn(path: string, controllers: readonly Controller[]): Promise<void> {
  const file = join(path, "cgroup.subtree_control");
  const given = words(await readText(file));
  for (const controller of controllers.filter((name) => !given.includes(name))) {
    try {
      await writeFile(file, `+${controller}`);
    } catch (error) {
      throw new Error(`cannot delegate ${controller} from ${path}: ${messageOf(error)}`, { cause: error });
    }
  }
}

function nothing(reason: string): OwnGroup {
  return { path: null, controllers: [], reason };
}

async function isWritable(path: string): Promise<boolean> {
  const needed = [path, join(path, "cgroup.procs"), join(path, "cgroup.subtree_control")];
  const results = await Promise.allSettled(needed.map(async (file) => access(file, constants.W_OK)));
  return results.every(({ status }) => status === "fulfilled");
}

/** Processes in the group that forkd did not start; it must not move them */
async function strangersIn(path: string, { proc }: GroupPlaces, parents: () => Promise<number[]>): Promise<number[]> {
  const pids = words(await readText(join(path, "cgroup.procs"))).map(Number);
  const notOf = async (candidates: number[], known: number[]): Promise<number[]> => {
    const strangers = [];
    for (const pid of candidates) if (!(await descends(pid, known, proc))) strangers.push(pid);
    return strangers;
  };
  const others = await notOf(pids, [process.pid]);
  return others.length === 0 ? [] : notOf(others, await parents());
}

async function descends(pid: number, parents: readonly number[], proc: string): Promise<boolean> {
  for (let current = pid; current > 1; current = await parentOf(current, proc)) if (parents.includes(current)) return true;
  // the process has ended since the list was read
  return (await readText(join(proc, String(pid), "stat"))) === "";
}

async function parentOf(pid: number, proc: string): Promise<number> {
  const stat = await readText(join(proc, String(pid), "stat"));
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1] ?? 0);
}

function words(text: string): string[] {
  return text.split(/\s+/).filter(Boolean);
}

/** "" for a file that does not exist */
async function readText(path: string): Promise<string> {
  return readFile(path, "utf8").catch(() => "");
}
