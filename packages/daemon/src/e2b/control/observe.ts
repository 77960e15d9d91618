// What sandboxes use, and what their consoles said.

import { guestMetrics } from "../guest-metrics.ts";
import { e2bId, forkdId } from "../ids.ts";
import { living } from "./sandboxes.ts";
import { timeOf } from "./view.ts";
import type { SandboxInfo } from "../../api/sandbox.ts";
import type { AnyAnswer } from "../../http/handler.ts";
import type { ControlWork } from "../work.ts";

const MAX_LINES = 1000;

/** One measurement, of now: forkd keeps no history of them */
export async function getMetrics(work: ControlWork): Promise<AnyAnswer> {
  const sandbox = living(work);
  return { status: 200, body: sandbox.state === "running" ? [await measured(sandbox, work)] : [] };
}

export async function getMetricsOfMany(work: ControlWork): Promise<AnyAnswer> {
  const ids = work.call.query.getAll("sandbox_ids").flatMap((text) => text.split(",").filter(Boolean));
  const known = work.services.manager.sandboxes.list({ state: ["running"] }).items;
  const wanted = known.filter(({ id }) => ids.some((asked) => forkdId(asked) === id));
  const pairs = await Promise.all(wanted.map(async (sandbox) => [e2bId(sandbox.id), await measured(sandbox, work)]));
  return { status: 200, body: { sandboxes: Object.fromEntries(pairs) } };
}

export async function getLogs(work: ControlWork): Promise<AnyAnswer> {
  const { call, services, caller } = work;
  const sandbox = living(work);
  const asked = Number(call.query.get("limit") ?? MAX_LINES);
  const tail = asked > 0 ? Math.min(asked, MAX_LINES) : MAX_LINES;
  let text = "";
  for await (const piece of services.manager.inside.logs(sandbox.id, { source: "console", tail }, caller.signal)) text += piece;
  const timestamp = timeOf(sandbox.created_at_unix);
  const lines = text.split("\n").filter(Boolean);
  const entries = lines.map((message) => ({ timestamp, level: "info", message, fields: {} }));
  if (call.path.startsWith("/v2/")) return { status: 200, body: { logs: entries } };
  return { status: 200, body: { logs: lines.map((line) => ({ timestamp, line })), logEntries: entries } };
}

async function measured(sandbox: SandboxInfo, { services, caller }: ControlWork): Promise<object> {
  const metrics = await guestMetrics(sandbox, services, caller);
  const timestampUnix = Math.floor(Date.now() / 1000);
  return { timestamp: timeOf(timestampUnix), timestampUnix, cpuCount: sandbox.vcpus, ...metrics };
}
