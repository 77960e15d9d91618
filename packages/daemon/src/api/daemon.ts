// The daemon itself: health, status, tokens, events, collection of garbage.

import * as z from "zod";
import { metadata, name, projectName, scope, unixSeconds } from "./common.ts";
import { sandboxStats } from "./sandbox.ts";
import { tree } from "./snapshot.ts";
import type { Route } from "./route.ts";

const MAX_TOKEN_SECS = 10 * 366 * 24 * 3600;

const health = z.strictObject({ ok: z.boolean() }).meta({ id: "Health" });

const readiness = z.strictObject({ ready: z.boolean(), reason: z.string().nullable() }).meta({ id: "Readiness" });

const version = z.strictObject({ version: z.string(), api: z.literal("v1") }).meta({ id: "Version" });

const status = z
  .strictObject({
    version: z.string(),
    node: z.string().meta({ description: "Code of this node: the ids of its sandboxes begin with it, behind `sb-`" }),
    pid: z.int(),
    uptime_secs: z.number(),
    home: z.string(),
    socket: z.string(),
    bind: z.string().nullable(),
    tls: z.boolean(),
    proxy_url: z
      .string()
      .nullable()
      .meta({ description: "Every server in a sandbox has the host PORT-ID below this one; null: browsers find none" }),
    accelerator: z.enum(["kvm", "tcg"]),
    accelerator_reason: z.string(),
    isolation: z.enum(["kvm", "emulated"]),
    isolation_policy: z.enum(["auto", "kvm", "any"]).meta({ description: "kvm: no emulated VM is started; auto: none where KVM works" }),
    confinement: z.enum(["namespaces", "none"]).meta({ description: "Of the VMMs that it starts" }),
    confinement_policy: z.enum(["required", "preferred"]),
    confinement_reason: z.string().nullable().meta({ description: "Why VMMs are not confined" }),
    engine: z.string(),
    sandboxes: z.int(),
    snapshots: z.int(),
    images: z.int(),
    cordoned: z.boolean().meta({ description: "It takes no forks; its sandboxes continue" }),
    leaving: z.boolean().meta({ description: "It ends soon: gateways move its running sandboxes to other nodes" }),
    pool_waiting: z.int(),
    branches_in_flight: z.int(),
    limits: z.strictObject({
      max_sandboxes: z.int(),
      max_memory_mib: z.int().nullable(),
      max_disk_mib: z.int().nullable(),
      min_free_mib: z.int(),
      branch_concurrency: z.int(),
    }),
    sandbox_limits: z
      .strictObject({
        applicable: z.array(z.string()).meta({ description: "Such as memory_limit_mib, cpu_limit" }),
        reason: z.string().nullable().meta({ description: "Why the others are not" }),
      })
      .meta({ description: "Limits that a fork can be given here" }),
    memory: z.strictObject({ committed_mib: z.int(), available_mib: z.int() }),
    disk: z.strictObject({ free_mib: z.int() }).meta({ description: "Of FORKD_HOME" }),
    load: z
      .number()
      .meta({ description: "Work of the processors in the last minute as a share of what they can do; more than 1: work waits" }),
  })
  .meta({ id: "Status" });

const stop = z
  .strictObject({
    kill_sandboxes: z
      .boolean()
      .default(false)
      .meta({ description: "Ends the sandboxes; else they keep running, and the next daemon adopts them" }),
    if_idle: z
      .boolean()
      .default(false)
      .meta({ description: "Only when there are no sandboxes, no waiting VMMs and no other requests; else 409 IN_USE" }),
  })
  .meta({ id: "Stop" });

const configEntry = z.strictObject({
  value: z.union([z.string(), z.number(), z.boolean(), z.null()]),
  source: z.enum(["option", "environment", "file", "default"]),
});

const config = z.record(z.string(), configEntry).meta({ id: "Config" });

const gcRequest = z
  .strictObject({ dry_run: z.boolean().default(false).meta({ description: "Reports what would be removed, and removes nothing" }) })
  .meta({ id: "CollectGarbage" });

const gcResult = z
  .strictObject({
    removed: z.array(
      z.strictObject({
        kind: z.enum(["snapshot", "flat-image", "guest-kernel", "image", "pack", "download", "staging", "run-folder", "vmm"]),
        name: z.string(),
        bytes: z.int(),
      }),
    ),
    bytes: z.int(),
    dry_run: z.boolean(),
  })
  .meta({ id: "GarbageCollected" });

const historySample = z
  .strictObject({
    time_unix: z.int(),
    forks: z.int().meta({ description: "Sandboxes forked since the sample before" }),
    branches: z.int(),
    sandboxes: z.int().meta({ description: "Alive at that time" }),
    guest_bytes: z.int().meta({ description: "Memory of their machines together" }),
    private_bytes: z.int().meta({ description: "Memory of the host that they have of their own; the rest is shared or unused" }),
  })
  .meta({ id: "HistorySample" });

const history = z
  .strictObject({
    step_secs: z.int(),
    samples: z.array(historySample).meta({ description: "Of the last hour, oldest first" }),
    bounds_ms: z.array(z.number()).meta({ description: "Upper bounds of the counts below; the last count has none" }),
    fork_counts: z.array(z.int()).meta({ description: "Forks of these samples, by the time until the sandbox answered" }),
    pause_counts: z.array(z.int()).meta({ description: "Branches of these samples, by the pause of their source" }),
  })
  .meta({ id: "History" });

const tokenInfo = z
  .strictObject({
    name: z.string(),
    project: z.string(),
    scope,
    max_sandboxes: z.int().nullable(),
    created_at_unix: z.int(),
    last_used_unix: z.int().nullable(),
    expires_at_unix: unixSeconds.nullable().meta({ description: "It is refused from then on; null: never" }),
    source: z.enum(["created", "file"]),
  })
  .meta({ id: "Token" });

const createToken = z
  .strictObject({
    name,
    project: projectName
      .optional()
      .meta({ description: "The project that it belongs to; without it, the caller's. Only an operator may name another one" }),
    scope: scope.default("exec").meta({ description: "What the token allows; at most what the caller's allows" }),
    max_sandboxes: z
      .int()
      .min(1)
      .nullable()
      .default(null)
      .meta({ description: "Limit of sandboxes that live at once; null: no limit of its own" }),
    expires_in_secs: z
      .int()
      .min(1)
      .max(MAX_TOKEN_SECS)
      .nullable()
      .default(null)
      .meta({ description: "It is refused after so many seconds; null: never" }),
  })
  .meta({ id: "CreateToken" });

const newToken = z
  .strictObject({ ...tokenInfo.shape, token: z.string().meta({ description: "Shown once; only its hash is stored" }) })
  .meta({ id: "NewToken" });

const eventType = z
  .enum([
    "sandbox.created",
    "sandbox.adopted",
    "sandbox.updated",
    "sandbox.network",
    "sandbox.paused",
    "sandbox.suspended",
    "sandbox.resumed",
    "sandbox.ended",
    "sandbox.lost",
    "sandbox.moved",
    "sandbox.deleted",
    "snapshot.writing",
    "snapshot.ready",
    "snapshot.failed",
    "snapshot.updated",
    "snapshot.deleted",
    "snapshot.pushed",
    "image.created",
    "image.deleted",
    "workspace.created",
    "workspace.suspended",
    "workspace.resumed",
    "workspace.deleted",
    "daemon.started",
    "daemon.stopping",
  ])
  .meta({ id: "EventType" });

const event = z
  .strictObject({
    id: z.int(),
    time: z.string(),
    type: eventType,
    project: z.string().nullable().meta({ description: "null: an event of the daemon" }),
    sandbox: z.string().nullable(),
    snapshot: z.string().nullable(),
    principal: z.string().nullable(),
    reason: z.string().nullable(),
    metadata: metadata.nullable(),
  })
  .meta({ id: "Event" });

const eventsQuery = z.strictObject({
  since: z.coerce
    .number()
    .int()
    .min(0)
    .optional()
    .meta({ description: "Only events after this id; the header Last-Event-ID does the same" }),
  types: z
    .string()
    .transform((text) => text.split(","))
    .pipe(z.array(eventType))
    .optional()
    .meta({ description: "Comma-separated" }),
  sandbox: name.optional(),
});

/** Lines of an answer that was asked for as application/x-ndjson: any number of progress, then result or error */
export const progressLine = z
  .strictObject({
    step: z.string(),
    done: z.number().optional(),
    total: z.number().optional(),
    unit: z.enum(["bytes", "items"]).optional(),
    note: z.boolean().optional().meta({ description: "Not a step but a warning, to be shown for good" }),
    ms: z.number().optional().meta({ description: "Of a build: the step is complete and took so long" }),
    cached: z.boolean().optional().meta({ description: "Of a build: the step was complete before" }),
  })
  .meta({ id: "Progress" });

const byName = z.strictObject({ name });

export const daemonRoutes = {
  getHealth: { method: "GET", path: "/healthz", scope: "none", summary: "Whether the daemon answers", responses: { 200: health } },
  getReadiness: {
    method: "GET",
    path: "/readyz",
    scope: "none",
    summary: "Whether the daemon accepts work: 503 while it starts and stops",
    responses: { 200: readiness, 503: readiness },
  },
  getVersion: { method: "GET", path: "/version", scope: "read", summary: "Version", responses: { 200: version } },
  getMetrics: { method: "GET", path: "/metrics", scope: "read", summary: "Metrics for Prometheus", responses: { 200: "text" } },
  getOpenapi: {
    method: "GET",
    path: "/v1/openapi.json",
    scope: "read",
    summary: "This document",
    responses: { 200: z.looseObject({ openapi: z.string() }) },
  },

  getStatus: { method: "GET", path: "/v1/status", scope: "read", summary: "The daemon and its host", responses: { 200: status } },
  getConfig: {
    method: "GET",
    path: "/v1/config",
    scope: "operator",
    summary: "Settings and the source of each",
    responses: { 200: config },
  },
  stopDaemon: {
    method: "POST",
    path: "/v1/stop",
    scope: "operator",
    summary: "Stops the daemon after all requests are answered; sandboxes keep running unless `kill_sandboxes` is set",
    body: stop,
    responses: { 202: "empty" },
  },
  collectGarbage: {
    method: "POST",
    path: "/v1/gc",
    scope: "operator",
    summary: "Removes unreferenced data",
    body: gcRequest,
    responses: { 200: gcResult },
  },
  getEvents: {
    method: "GET",
    path: "/v1/events",
    scope: "read",
    summary: "Every change of state, as server-sent events",
    query: eventsQuery,
    responses: { 200: "events" },
    events: event,
    acrossProjects: true,
  },
  getTree: {
    method: "GET",
    path: "/v1/tree",
    scope: "read",
    summary: "The lineage of snapshots and sandboxes",
    responses: { 200: tree },
    acrossProjects: true,
  },
  getStats: {
    method: "GET",
    path: "/v1/stats",
    scope: "read",
    summary: "Resource usage of every live sandbox",
    responses: { 200: z.array(sandboxStats) },
    acrossProjects: true,
  },

  getHistory: {
    method: "GET",
    path: "/v1/history",
    scope: "read",
    summary: "Forks, branches and memory of the last hour",
    responses: { 200: history },
  },

  listTokens: {
    method: "GET",
    path: "/v1/tokens",
    scope: "admin",
    summary: "Tokens of the project",
    responses: { 200: z.array(tokenInfo) },
    acrossProjects: true,
  },
  createToken: {
    method: "POST",
    path: "/v1/tokens",
    scope: "admin",
    summary: "Creates a token and returns it once",
    body: createToken,
    responses: { 201: newToken },
  },
  rotateToken: {
    method: "POST",
    path: "/v1/tokens/:name/rotate",
    scope: "admin",
    summary: "Gives a token a new value; the old one becomes invalid at once",
    params: byName,
    responses: { 200: newToken },
  },
  deleteToken: {
    method: "DELETE",
    path: "/v1/tokens/:name",
    scope: "admin",
    summary: "Revokes a token",
    params: byName,
    responses: { 204: "empty" },
  },
} as const satisfies Record<string, Route>;

export type Status = z.infer<typeof status>;
export type Config = z.infer<typeof config>;
export type GcResult = z.infer<typeof gcResult>;
export type TokenInfo = z.infer<typeof tokenInfo>;
export type CreateToken = z.infer<typeof createToken>;
export type NewToken = z.infer<typeof newToken>;
export type History = z.infer<typeof history>;
export type EventType = z.infer<typeof eventType>;
export type Event = z.infer<typeof event>;
export type EventsQuery = z.infer<typeof eventsQuery>;
