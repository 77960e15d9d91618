// Leftovers of a test job: processes that name its folders, and file systems that are mounted below them.

import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

const run = promisify(execFile);
/** Time for processes that got their signal to end just before their job ended */
const SETTLE_MS = 1000;
/** Time from SIGTERM to SIGKILL. On SIGTERM mmdebstrap removes its mounts and its tree */
const GRACE_MS = 20_000;
/** Time for killed processes to end, and for the processes that they started meanwhile */
const KILL_MS = 5000;
const POLL_MS = 100;
const SHOWN_CHARS = 300;

export type LeftProcess = { pid: number; command: string };

/**
 * Other processes with one of the folders in their command line or in the environment they were started with. A daemon
 * is in its own session and names no folder in its command line, but it inherits the variables with its job's folders
 */
export async function processesOf(folders: readonly string[]): Promise<LeftProcess[]> {
  const pids = (await readdir("/proc")).map(Number).filter((pid) => pid > 0 && pid !== process.pid);
  const found: LeftProcess[] = [];
  for (const pid of pids) {
    const command = await textOf(pid, "cmdline");
    const words = [command, await textOf(pid, "environ")].join("\0").split("\0");
    if (words.some((word) => folders.some((folder) => names(word, folder))))
      found.push({ pid, command: command.replaceAll("\0", " ").trim().slice(0, SHOWN_CHARS) });
  }
  return found;
}

/** Ends the processes of the folders, and returns those that did not end by themselves */
export async function endProcesses(folders: readonly string[], graceMs = GRACE_MS): Promise<LeftProcess[]> {
  const left = await rest(folders, SETTLE_MS);
  for (const { pid } of left) signalProcess(pid, "SIGTERM");
  if (left.length === 0 || (await rest(folders, graceMs)).length === 0) return left;
  const until = performance.now() + KILL_MS;
  do for (const { pid } of await processesOf(folders)) signalProcess(pid, "SIGKILL");
  while ((await rest(folders, POLL_MS)).length > 0 && performance.now() < until);
  return left;
}

/** Unmounts everything below the folders, and returns the mount points */
export async function unmountBelow(folders: readonly string[]): Promise<string[]> {
  const points = await mountsBelow(folders);
  for (const point of points) {
    // one that was mounted below another has gone with it
    if (!(await mountsBelow([point])).includes(point)) continue;
    // A tree of mounts that was bound may be shared with its original, which would be unmounted too.
    await run("mount", ["--make-rprivate", point]);
    await run("umount", ["--lazy", point]);
  }
  return points;
}

export function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** The processes that are there after the time, or none as soon as there is none */
async function rest(folders: readonly string[], withinMs: number): Promise<LeftProcess[]> {
  const until = performance.now() + withinMs;
  for (;;) {
    const left = await processesOf(folders);
    if (left.length === 0 || performance.now() >= until) return left;
    await sleep(POLL_MS);
  }
}

/** Mount points at or below the folders, parents first */
async function mountsBelow(folders: readonly string[]): Promise<string[]> {
  const lines = (await readFile("/proc/self/mountinfo", "utf8")).split("\n");
  const points = lines.map((line) => decode(line.split(" ")[4] ?? ""));
  return points.filter((point) => folders.some((folder) => point === folder || point.startsWith(`${folder}/`)));
}

/** Spaces and other separators are written in octal */
function decode(path: string): string {
  return path.replaceAll(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

/** Whether a word has the path, and not only one that begins with the same characters */
function names(word: string, folder: string): boolean {
  for (let at = word.indexOf(folder); at >= 0; at = word.indexOf(folder, at + 1)) {
    if (["", "/", ":", ",", " "].includes(word.charAt(at + folder.length))) return true;
  }
  return false;
}

/** Empty for a process that has ended, or of another user */
async function textOf(pid: number, name: "cmdline" | "environ"): Promise<string> {
  try {
    return await readFile(`/proc/${pid}/${name}`, "utf8");
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "";
    if (["ENOENT", "ESRCH", "EACCES", "EPERM"].includes(code)) return "";
    throw error;
  }
}
