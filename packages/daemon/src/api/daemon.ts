// The daemon itself: health, status, tokens, events, collection of garbage.

import * as z from "zod";
import { metadata, name } from "./common.ts";

const scope = z.enum(["read", "exec", "admin"]).meta({
  id: "Scope",
  description: "read: look at everything; exec: also fork, use, branch and end sandboxes; admin: everything",
});

export const health = z.strictObject({ ok: z.boolean() }).meta({ id: "Health" });

export const readiness = z.strictObject({ ready: z.boolean(), reason: z.string().nullable() }).meta({ id: "Readiness" });

export const version = z.strictObject({ version: z.string(), api: z.literal("v1") }).meta({ id: "Version" });

export const status = z
  .strictObject({
    version: z.string(),
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
    confinement: z.enum(["namespaces", "none"]).meta({ description: "Of the VMMs that it starts" }),
    confinement_policy: z.enum(["required", "preferred"]),
    confinement_reason: z.string().nullable().meta({ description: "Why VMMs are not confined" }),
    engine: z.string(),
    sandboxes: z.int(),
    snapshots: z.int(),
    images: z.int(),
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
  })
  .meta({ id: "Status" });

export const stop = z
  .strictObject({
    kill_sandboxes: z.boolean().default(false),
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

export const config = z.record(z.string(), configEntry).meta({ id: "Config" });

export const gcRequest = z.strictObject({ dry_run: z.boolean().default(false) }).meta({ id: "CollectGarbage" });

export const gcResult = z
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

export const tokenInfo = z
  .strictObject({
    name: z.string(),
    scope,
    max_sandboxes: z.int().nullable(),
    created_at_unix: z.int(),
    last_used_unix: z.int().nullable(),
    source: z.enum(["created", "file"]),
  })
  .meta({ id: "Token" });

export const createToken = z
  .strictObject({ name, scope: scope.default("exec"), max_sandboxes: z.int().min(1).nullable().default(null) })
  .meta({ id: "CreateToken" });

export const newToken = z
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

export const event = z
  .strictObject({
    id: z.int(),
    time: z.string(),
    type: eventType,
    sandbox: z.string().nullable(),
    snapshot: z.string().nullable(),
    principal: z.string().nullable(),
    reason: z.string().nullable(),
    metadata: metadata.nullable(),
  })
  .meta({ id: "Event" });

export const eventsQuery = z.strictObject({
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
  })
  .meta({ id: "Progress" });

export type Scope = z.infer<typeof scope>;
export type Status = z.infer<typeof status>;
export type Config = z.infer<typeof config>;
export type GcResult = z.infer<typeof gcResult>;
export type TokenInfo = z.infer<typeof tokenInfo>;
export type CreateToken = z.infer<typeof createToken>;
export type NewToken = z.infer<typeof newToken>;
export type EventType = z.infer<typeof eventType>;
export type Event = z.infer<typeof event>;
export type EventsQuery = z.infer<typeof eventsQuery>;
