// E2B control API: resource usage and console logs.

import { ForkdError } from "@forkd/runtime/errors";
import { e2bId, forkdId } from "../../dispatch/e2b-id.ts";
import { living } from "./sandboxes.ts";
import { timeOf } from "./view.ts";
import type { SandboxInfo } from "../../api/sandbox.ts";
import type { Answer } from "../../dispatch/answer.ts";
import type { ControlWork } from "../work.ts";

const MAX_LINES = 1000;
/** E2B's sampling interval, and the tolerance for start and end */
const STEP_SECS = 5;

/** One current sample: forkd keeps no history, so a past or future interval is empty */
export async function getMetrics(work: ControlWork): Promise<Answer> {
  const sandbox = living(work);
  const isWanted = includes(work.call.query, Date.now() / 1000);
  return { status: 200, body: isWanted && sandbox.state === "running" ? await measured(sandbox, work) : [] };
}

/** Whether the interval from `start` to `end` (both optional) contains the time */
export function includes(query: URLSearchParams, nowUnix: number): boolean {
  const start = unixOf(query, "start") ?? -Infinity;
  const end = unixOf(query, "end") ?? Infinity;
  if (start > end) throw new ForkdError("BAD_REQUEST", "Cannot get metrics: start: must not be after end.");
  // a client computes "until now" shortly before the request arrives
  return start - STEP_SECS <= nowUnix && nowUnix <= end + STEP_SECS;
}

function unixOf(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null || text === "") return undefined;
  if (!/^-?\d{1,15}$/.test(text)) throw new ForkdError("BAD_REQUEST", `Cannot get metrics: ${name}: must be a time in seconds.`);
  return Number(text);
}

export async function getMetricsOfMany(work: ControlWork): Promise<Answer> {
  const ids = work.call.query.getAll("sandbox_ids").flatMap((text) => text.split(",").filter(Boolean));
  const known = work.services.manager.sandboxes.list({ state: ["running"] }, work.caller).items;
  const wanted = known.filter(({ id }) => ids.some((asked) => forkdId(asked) === id));
  const all = await Promise.allSettled(
    wanted.map(async (sandbox) => (await measured(sandbox, work)).map((metrics): [string, object] => [e2bId(sandbox.id), metrics])),
  );
  // skip sandboxes that have ended or whose guest does not respond
  const pairs = all.flatMap((one) => (one.status === "fulfilled" ? one.value : []));
  return { status: 200, body: { sandboxes: Object.fromEntries(pairs) } };
}

export async function getLogs(work: ControlWork): Promise<Answer> {
  const { call, services, caller } = work;
  const sandbox = living(work);
  const asked = Number(call.query.get("limit") ?? MAX_LINES);
  const tail = asked > 0 ? Math.min(asked, MAX_LINES) : MAX_LINES;
  let text = "";
  for await (const piece of services.manager.execution.logs(sandbox.id, { source: "console", tail }, caller)) text += piece;
  const timestamp = timeOf(sandbox.created_at_unix);
  const lines = text.split("\n").filter(Boolean);
  const entries = lines.map((message) => ({ timestamp, level: "info", message, fields: {} }));
  if (call.path.startsWith("/v2/")) return { status: 200, body: { logs: entries } };
  return { status: 200, body: { logs: lines.map((line) => ({ timestamp, line })), logEntries: entries } };
}

/** One sample; empty if the agent is too old to report metrics */
async function measured({ id, vcpus }: SandboxInfo, { services, caller }: ControlWork): Promise<object[]> {
  const metrics = await services.manager.execution.metrics(id, caller);
  if (!metrics) return [];
  const timestampUnix = Math.floor(Date.now() / 1000);
  return [{ timestamp: timeOf(timestampUnix), timestampUnix, cpuCount: vcpus, ...metrics }];
}
