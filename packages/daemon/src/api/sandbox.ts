// Sandboxes: running VMs.

import * as z from "zod";
import {
  bySandbox,
  env,
  flag,
  legacyFields,
  metadata,
  metadataFilter,
  name,
  page,
  problem,
  reference,
  unixSeconds,
  warnings,
} from "./common.ts";
import { networkPolicy, setNetwork } from "./network.ts";
import type { Route } from "./route.ts";

const MAX_FORK = 1000;
const MAX_SECS = 366 * 24 * 3600;
const MAX_SHARES = 16;
const MAX_PATH = 4096;

const absolutePath = z.string().max(MAX_PATH).startsWith("/", "must be an absolute path");

const share = z
  .strictObject({
    source: absolutePath.meta({ description: "A folder of the daemon's machine" }),
    target: absolutePath.meta({ description: "Where the guest sees it; made where it is missing" }),
  })
  .meta({ id: "Share", description: "A folder of the daemon's machine that the guest sees live and read-only" });

/** What the host holds a sandbox to; null: no limit */
const limitInfo = {
  memory_limit_mib: z.int().min(1).nullable().meta({
    description: "Memory of the host that it may use, its VMM included; a limit of the machine's own memory or more always holds",
  }),
  cpu_limit: z.number().min(0.01).max(4096).nullable().meta({ description: "Number of CPUs that it may use, such as 0.5" }),
  cpu_weight: z.int().min(1).max(10_000).nullable().meta({ description: "Share of the CPUs when several want them; 100 is usual" }),
  pids_limit: z.int().min(1).max(4_194_304).nullable().meta({ description: "Threads of its VMM; processes inside the guest do not count" }),
  io_limit_mbps: z
    .number()
    .min(0.001)
    .max(1_000_000)
    .nullable()
    .meta({ description: "Megabytes (10^6 bytes) a second that it may read, and as many that it may write, on the disk of FORKD_HOME" }),
};

const memoryLimit = z.int().min(0).nullable().optional();

/** Those that cannot be applied are refused with LIMIT_UNAVAILABLE, before anything is made */
export const limits = {
  ...z.strictObject(limitInfo).partial().shape,
  memory_limit_mib: memoryLimit.meta({ description: `${limitInfo.memory_limit_mib.meta()?.description}; 0: none` }),
};

export const sandboxState = z.enum(["running", "paused", "suspended", "ended", "lost"]).meta({
  id: "SandboxState",
  description:
    "paused: its CPUs are stopped, its memory stays; suspended: all of it is on the host's disk; ended: its VMM ended by itself; lost: it was running when the host or the warden ended",
});

const certificate = z
  .strictObject({
    clock_skew_ms: z.number().meta({ description: "Upper bound of the difference to the host's clock" }),
    clock_drift_ppm: z
      .int()
      .nullable()
      .meta({ description: "How much faster than the host's its clock runs, in millionths; null: not measured" }),
    clock_measured: z
      .enum(["sandbox", "snapshot"])
      .nullable()
      .meta({ description: "Where that was measured: in this sandbox, which takes a while, or before that in its snapshot" }),
    guest_rng: z.literal("reseeded"),
    ran_before_ms: z.number().nullable().meta({
      description:
        "For how long at most processes of the snapshot ran before clock and randomness were its own; 0: they were frozen until then; null: not known",
    }),
    not_reseeded: z.array(z.string()).meta({
      description: "Generators of its interpreters, as CONTEXT/GENERATOR, that are the same in its siblings until they reseed themselves",
    }),
    kernels: z.record(z.string(), z.strictObject({ state: z.enum(["reseeded", "pending"]), generators: z.array(z.string()) })),
    identity: z.strictObject({ hostname: z.string(), machine_id: z.string(), boot_id: z.string() }),
    disk: z.enum(["private-overlay", "private-layer"]).meta({
      description: "Where its writes go: an overlay in its own memory, or a layer of its own on the host's disk",
    }),
    memory: z.literal("private-copy-on-write"),
  })
  .meta({ id: "ForkCertificate", description: "Steps, done and checked, that made the fork an independent machine" });

const onTimeout = z
  .enum(["end", "suspend"])
  .meta({ id: "OnTimeout", description: "What happens after its time to live, or after its idle time-out" });
const autoResume = z.boolean().meta({ description: "Whether the next use of the suspended sandbox resumes it" });

export const sandboxInfo = z
  .strictObject({
    id: z.string(),
    project: z.string(),
    name: z.string().nullable(),
    snapshot_tag: z.string().meta({ description: "PROJECT/NAME if the snapshot belongs to another project" }),
    snapshot_id: z.string(),
    state: sandboxState,
    reason: z.string().nullable().meta({ description: "Why it ended or was lost" }),
    isolation: z.enum(["kvm", "emulated"]),
    confinement: z
      .enum(["namespaces", "none"])
      .meta({ description: "namespaces: its VMM sees only its own files; none: it can do what the daemon's user can" }),
    started_by: z
      .enum(["restore", "clone"])
      .nullable()
      .meta({ description: "clone: its VMM is a copy of one that waits; restore: it loaded the snapshot. null: it does not run" }),
    memory_mib: z.int(),
    vcpus: z.int(),
    disk_mib: z.int().nullable().meta({ description: "null: its writes stay in its memory" }),
    kernels: z.array(z.string()).meta({ description: "Warm interpreters for eval" }),
    metadata,
    created_at_unix: unixSeconds,
    created_at_unix_ms: z.int().min(0).meta({ description: "The same moment in milliseconds: the order in which sandboxes were made" }),
    last_active_unix: unixSeconds,
    expires_at_unix: unixSeconds.nullable(),
    idle_timeout_secs: z.int().nullable(),
    suspended_ttl_secs: z.int().nullable(),
    on_timeout: onTimeout,
    auto_resume: autoResume,
    created_by: z.string(),
    pid: z.int().nullable(),
    fork_ms: z.number(),
    certificate,
    shares: z
      .array(z.strictObject({ source: z.string(), target: z.string() }))
      .meta({ description: "Folders of the daemon's machine that it sees" }),
    branch_count: z.int(),
    has_branched: z.boolean(),
    ...limitInfo,
    network: networkPolicy,
    netns: z.null(),
    guest_addr: z.string().meta({ description: "Of the older API, always empty: guests are reached through the daemon" }),
    last_branch_memory_path: z.string().nullable(),
    warnings,
  })
  .meta({ id: "Sandbox" });

const lifetime = {
  ttl_secs: z.int().min(1).max(MAX_SECS).nullable().optional().meta({ description: "It ends so long after now; null: never" }),
  idle_timeout_secs: z.int().min(1).max(MAX_SECS).nullable().optional().meta({ description: "Seconds without use after which it ends" }),
  suspended_ttl_secs: z
    .int()
    .min(1)
    .max(MAX_SECS)
    .nullable()
    .optional()
    .meta({ description: "Seconds after which it is removed while it is suspended; null: never" }),
  on_timeout: onTimeout.optional(),
  auto_resume: autoResume.optional(),
};

const forkFields = {
  n: z.int().min(1).max(MAX_FORK).default(1).meta({ description: "Number of sandboxes" }),
  env: env.optional(),
  metadata: metadata.optional(),
  network: setNetwork.optional().meta({ description: "Without it, that of the snapshot" }),
  shares: z.array(share).max(MAX_SHARES).optional().meta({
    description: "Only through the Unix socket, or with scope admin below share_roots; without it, those of the sandbox it descends from",
  }),
  isolation: z.enum(["any", "kvm"]).optional().meta({
    description:
      "any: also emulated by the engine's translator, which is not a security boundary; kvm: only with KVM. Without it, what the daemon's setting says; one that demands KVM cannot be lowered",
  }),
  ...lifetime,
  ...limits,
};

const createSandboxes = z
  .strictObject({
    snapshot_tag: reference,
    ...forkFields,
    name: name.optional().meta({ description: "Only with n = 1" }),
    per_item: z.boolean().default(false).meta({ description: "Answer 207 with an outcome per child instead of all or nothing" }),
    ...legacyFields,
  })
  .refine((request) => request.name === undefined || request.n === 1, { path: ["name"], message: "is only possible with n = 1" })
  .meta({ id: "CreateSandboxes" });

const forkOutcome = z.union([z.strictObject({ sandbox: sandboxInfo }), z.strictObject({ error: problem })]).meta({ id: "ForkOutcome" });

const forkOutcomes = z.strictObject({ results: z.array(forkOutcome) }).meta({ id: "ForkOutcomes" });

export const forkSandbox = z
  .strictObject({
    ...forkFields,
    tag: name.optional().meta({ description: "Keeps the snapshot under this tag; without it, it is removed when nothing needs it" }),
  })
  .meta({ id: "ForkSandbox" });

const updateSandbox = z
  .strictObject({
    name: name.nullable().optional().meta({ description: "The new name; null removes it" }),
    metadata: metadata.optional().meta({ description: "Replaces the metadata" }),
    rotate_access: z.literal(true).optional().meta({
      description: "Gives it new access tokens of E2B's protocol; those that were given out and what they have under way end at once",
    }),
    ...lifetime,
  })
  .meta({ id: "UpdateSandbox" });

const listSandboxes = z.strictObject({
  ...page,
  tag: reference.optional().meta({ description: "Only forks of this snapshot" }),
  state: z
    .string()
    .transform((text) => text.split(","))
    .pipe(z.array(sandboxState))
    .optional()
    .meta({ description: "Comma-separated; without it, running, paused and suspended" }),
  metadata: metadataFilter,
});

const deleteSandboxes = z.strictObject({
  tag: reference.optional().meta({ description: "Those of this snapshot" }),
  all: flag.meta({ description: "Every one" }),
});

export const sandboxStats = z
  .strictObject({
    id: z.string(),
    name: z.string().nullable(),
    state: sandboxState,
    cpu_ms: z.number().meta({ description: "CPU time of the VMM so far" }),
    private_guest_bytes: z.int().meta({ description: "Guest memory that is this sandbox's own" }),
    pss_bytes: z.int().meta({ description: "The VMM process, shared pages divided by their users" }),
    disk_bytes: z.int().nullable().meta({ description: "The host's disk space that is this sandbox's own; null without a disk" }),
  })
  .meta({ id: "SandboxStats" });

const logsQuery = z.strictObject({
  source: z.enum(["console", "agent", "vmm"]).default("console").meta({ description: "Which log" }),
  tail: z.coerce.number().int().min(0).max(100_000).optional().meta({ description: "Only the last lines" }),
  follow: flag.meta({ description: "Continues until the sandbox is gone" }),
});

export const sandboxRoutes = {
  listSandboxes: {
    method: "GET",
    path: "/v1/sandboxes",
    scope: "read",
    summary: "Sandboxes",
    query: listSandboxes,
    responses: { 200: z.array(sandboxInfo) },
    acrossProjects: true,
  },
  createSandboxes: {
    method: "POST",
    path: "/v1/sandboxes",
    scope: "exec",
    summary: "Forks a snapshot",
    body: createSandboxes,
    responses: { 201: z.array(sandboxInfo), 207: forkOutcomes },
  },
  deleteSandboxes: {
    method: "DELETE",
    path: "/v1/sandboxes",
    scope: "exec",
    summary: "Ends all sandboxes, or all of one snapshot; returns their ids when they are gone",
    query: deleteSandboxes,
    responses: { 200: z.array(z.string()) },
  },
  getSandbox: {
    method: "GET",
    path: "/v1/sandboxes/:id",
    scope: "read",
    summary: "One sandbox",
    params: bySandbox,
    responses: { 200: sandboxInfo },
  },
  updateSandbox: {
    method: "PATCH",
    path: "/v1/sandboxes/:id",
    scope: "exec",
    summary: "Renames a sandbox, replaces its metadata, extends its lifetime, rotates its access tokens",
    params: bySandbox,
    body: updateSandbox,
    responses: { 200: sandboxInfo },
  },
  deleteSandbox: {
    method: "DELETE",
    path: "/v1/sandboxes/:id",
    scope: "exec",
    summary: "Ends a sandbox; returns when its process, sockets and files are gone",
    params: bySandbox,
    responses: { 204: "empty" },
  },
  pauseSandbox: {
    method: "POST",
    path: "/v1/sandboxes/:id/pause",
    scope: "exec",
    summary: "Stops the CPUs of a sandbox; its memory is kept",
    params: bySandbox,
    responses: { 200: sandboxInfo },
  },
  suspendSandbox: {
    method: "POST",
    path: "/v1/sandboxes/:id/suspend",
    scope: "exec",
    summary: "Saves the memory and disk of a sandbox and frees its resources; id and name are kept",
    params: bySandbox,
    responses: { 200: sandboxInfo },
  },
  resumeSandbox: {
    method: "POST",
    path: "/v1/sandboxes/:id/resume",
    scope: "exec",
    summary: "Resumes a paused or suspended sandbox and sets its clock",
    params: bySandbox,
    responses: { 200: sandboxInfo },
  },
  getSandboxStats: {
    method: "GET",
    path: "/v1/sandboxes/:id/stats",
    scope: "read",
    summary: "Resource usage of a sandbox",
    params: bySandbox,
    responses: { 200: sandboxStats },
  },
  getSandboxLogs: {
    method: "GET",
    path: "/v1/sandboxes/:id/logs",
    scope: "read",
    summary: "Log of the guest's console, the agent or the VMM",
    params: bySandbox,
    query: logsQuery,
    responses: { 200: "text" },
  },
} as const satisfies Record<string, Route>;

export type SandboxInfo = z.infer<typeof sandboxInfo>;
export type Share = z.infer<typeof share>;
export type SandboxState = z.infer<typeof sandboxState>;
export type CreateSandboxes = z.infer<typeof createSandboxes>;
export type ForkSandbox = z.infer<typeof forkSandbox>;
export type UpdateSandbox = z.infer<typeof updateSandbox>;
export type ListSandboxes = z.infer<typeof listSandboxes>;
export type ForkOutcomes = z.infer<typeof forkOutcomes>;
export type SandboxStats = z.infer<typeof sandboxStats>;
export type LogsQuery = z.infer<typeof logsQuery>;
