// Identifies a process by pid and start time, because the kernel reuses pids.

import { readFile } from "node:fs/promises";

export type ProcessId = { pid: number; startTime: string };

/** Start time of a process in clock ticks since boot; undefined when the process does not exist */
export async function startTimeOf(pid: number): Promise<string | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8");
    // The command name in field 2 may contain spaces and brackets: count from its last bracket. Start time is field 22.
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ESRCH") return undefined;
    throw error;
  }
}

let own: Promise<ProcessId> | undefined;

export async function ownProcessId(): Promise<ProcessId> {
  own ??= startTimeOf(process.pid).then((startTime) => ({ pid: process.pid, startTime: startTime ?? "" }));
  return own;
}

export async function isAlive(id: ProcessId): Promise<boolean> {
  return (await startTimeOf(id.pid)) === id.startTime;
}
