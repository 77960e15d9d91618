// What a guest uses, as it sees it itself. Nothing is kept: who asks gets what is so now.

import { outputOf } from "./guest-exec.ts";
import type { SandboxInfo } from "../api/sandbox.ts";
import type { Caller } from "../manager/caller.ts";
import type { E2bServices } from "./work.ts";

/** Twice the CPU's counters a moment apart, the memory, and the disk in KiB */
const SCRIPT = "head -n 1 /proc/stat; sleep 0.2; head -n 1 /proc/stat; cat /proc/meminfo; df -Pk /";

export type GuestMetrics = { cpuUsedPct: number; memUsed: number; memTotal: number; memCache: number; diskUsed: number; diskTotal: number };

export async function guestMetrics({ id, vcpus }: SandboxInfo, services: E2bServices, caller: Caller): Promise<GuestMetrics> {
  return parseMetrics((await outputOf(["/bin/sh", "-c", SCRIPT], { id, services, caller })) ?? "", vcpus);
}

export function parseMetrics(text: string, vcpus: number): GuestMetrics {
  const lines = text.split("\n");
  const [before = [], after = []] = lines
    .filter((line) => line.startsWith("cpu "))
    .map((line) => line.trim().split(/\s+/).slice(1).map(Number));
  const spent = after.map((value, at) => value - (before[at] ?? 0));
  const total = spent.reduce((sum, value) => sum + value, 0);
  const [, , , idle = 0, waiting = 0] = spent;
  const bytesOf = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(text)?.[1] ?? 0) * 1024;
  const memTotal = bytesOf("MemTotal");
  const memCache = bytesOf("Cached") + bytesOf("Buffers");
  const disk =
    lines
      .findLast((line) => line.trim() !== "")
      ?.trim()
      .split(/\s+/) ?? [];
  return {
    cpuUsedPct: total > 0 ? Math.round(((total - idle - waiting) / total) * 100 * vcpus * 100) / 100 : 0,
    memTotal,
    memCache,
    memUsed: memTotal - bytesOf("MemAvailable"),
    diskTotal: (Number(disk[1]) || 0) * 1024,
    diskUsed: (Number(disk[2]) || 0) * 1024,
  };
}
