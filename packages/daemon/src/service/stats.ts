// Host resource usage of a sandbox.

import { readFile } from "node:fs/promises";
import type { SandboxStats } from "../api/sandbox.ts";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import type { Entry } from "./registry.ts";

/** /proc/PID/stat counts in hundredths of a second on every supported Linux */
const TICK_MS = 10;

export async function sandboxStats({ row }: Entry, sandbox: Sandbox): Promise<SandboxStats> {
  const [cpuMs, memory, diskBytes] = await Promise.all([cpuMsOf(sandbox.vm.pid), sandbox.memoryUsage(), sandbox.disk?.ownBytes()]);
  return {
    id: row.id,
    name: row.name,
    state: row.state,
    cpu_ms: cpuMs,
    private_guest_bytes: memory.privateGuestBytes,
    pss_bytes: memory.pssBytes,
    disk_bytes: diskBytes ?? null,
  };
}

async function cpuMsOf(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  // utime and stime, fields 14 and 15
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

/** Private memory of a VMM, guest pages included; cheap enough for every scrape */
export async function privateBytesOf(pid: number): Promise<number> {
  const kib = /^RssAnon:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, "utf8"))?.[1];
  return Number(kib ?? 0) * 1024;
}
