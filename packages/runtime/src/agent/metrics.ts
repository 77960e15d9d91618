// Resource usage of a guest, from its kernel's counters. The agent reads them without starting a program.

import { setTimeout as sleep } from "node:timers/promises";
import type { AgentConnection } from "./wire/connection.ts";
import { T } from "./wire/protocol.ts";
import { AgentError } from "./wire/stream.ts";

const ANSWER_WITHIN_MS = 10_000;
/** CPU time is counted in hundredths of a second, so a shorter interval is inexact */
const MEASURE_OVER_MS = 200;

export type GuestMetrics = {
  /** percent of one CPU: all of two CPUs are 200 */
  cpuUsedPct: number;
  memUsed: number;
  memTotal: number;
  memCache: number;
  diskUsed: number;
  diskTotal: number;
};

type Counters = { busyTicks: number; allTicks: number } & Omit<GuestMetrics, "cpuUsedPct">;

/** undefined: the agent is of an earlier version and reports none */
export async function guestMetrics(agent: AgentConnection, vcpus: number, signal?: AbortSignal): Promise<GuestMetrics | undefined> {
  const before = await countersOf(agent, signal);
  if (!before) return undefined;
  await sleep(MEASURE_OVER_MS);
  const after = await countersOf(agent, signal);
  if (!after) return undefined;
  const { busyTicks, allTicks, ...used } = after;
  const [busy, all] = [busyTicks - before.busyTicks, allTicks - before.allTicks];
  // the guest may send any values: bound them
  const share = all > 0 ? Math.min(1, Math.max(0, busy / all)) : 0;
  return { ...used, cpuUsedPct: Math.round(share * vcpus * 10_000) / 100 };
}

async function countersOf(agent: AgentConnection, signal: AbortSignal | undefined): Promise<Counters | undefined> {
  try {
    const reader = await agent.call(T.METRICS, Buffer.alloc(0), { timeoutMs: ANSWER_WITHIN_MS, signal });
    const next = (): number => reader.count();
    const [busyTicks, allTicks, memTotal, available, memCache, diskTotal, diskUsed] = [
      next(),
      next(),
      next(),
      next(),
      next(),
      next(),
      next(),
    ];
    return { busyTicks, allTicks, memTotal, memUsed: Math.max(0, memTotal - available), memCache, diskTotal, diskUsed };
  } catch (error) {
    if (error instanceof AgentError && error.errno === "unsupported") return undefined;
    throw error;
  }
}
