// Sandboxes: running VMs.

import * as z from "zod";
import { networkPolicy, setNetwork } from "./network.ts";
import { env, flag, metadata, metadataFilter, name, page, plumbing, problem, unixSeconds, warnings } from "./common.ts";

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
  memory_limit_mib: z
    .int()
    .min(1)
    .nullable()
    .meta({ description: "Memory of the host that it may take, its VMM included; from the machine's own memory on it is kept by itself" }),
  cpu_limit: z.number().min(0.01).max(4096).nullable().meta({ description: "CPUs' worth of time, such as 0.5" }),
  cpu_weight: z.int().min(1).max(10_000).nullable().meta({ description: "Share of the CPUs when several want them; 100 is usual" }),
  pids_limit: z
    .int()
    .min(1)
    .max(4_194_304)
    .nullable()
    .meta({ description: "Threads of its VMM; what runs inside the guest does not count" }),
  io_limit_mbps: z
    .number()
    .min(0.001)
    .max(1_000_000)
    .nullable()
    .meta({ description: "Megabytes (10^6 bytes) a second that it may read, and as many that it may write, on the disk of FORKD_HOME" }),
};

/** Those that cannot be applied are refused with LIMIT_UNAVAILABLE, before anything is made */
export const limits = z.strictObject(limitInfo).partial().shape;

const sandboxState = z.enum(["running", "paused", "suspended", "ended", "lost"]).meta({
  id: "SandboxState",
  description:
    "paused: its CPUs are stopped, its memory stays; suspended: all of it is on the host's disk; ended: its VMM ended by itself; lost: it was running when the host, or the process that holds the VMs, went down",
});

const certificate = z
  .strictObject({
    clock_skew_ms: z.number().meta({ description: "Upper bound of the difference to the host's clock" }),
    guest_rng: z.literal("reseeded"),
    kernels: z.record(z.string(), z.strictObject({ state: z.enum(["reseeded", "pending"]), generators: z.array(z.string()) })),
    identity: z.strictObject({ hostname: z.string(), machine_id: z.string(), boot_id: z.string() }),
    disk: z.enum(["private-overlay", "private-layer"]).meta({
      description: "Where what it writes goes: an overlay in its own memory, or a layer of its own on the host's disk",
    }),
    memory: z.literal("private-copy-on-write"),
  })
  .meta({ id: "ForkCertificate", description: "What was done and checked to make the fork a machine of its own" });

const onTimeout = z
  .enum(["end", "suspend"])
  .meta({ id: "OnTimeout", description: "What happens when its time is over, or nobody used it for so long" });
const autoResume = z.boolean().meta({ description: "Whether it wakes up by itself when it is suspended and somebody uses it" });

export const sandboxInfo = z
  .strictObject({
    id: z.string(),
    name: z.string().nullable(),
    snapshot_tag: z.string(),
    snapshot_id: z.string(),
    state: sandboxState,
    reason: z.string().nullable().meta({ description: "Why it ended or was lost" }),
    isolation: z.enum(["kvm", "emulated"]),
    confinement: z
      .enum(["namespaces", "none"])
      .meta({ description: "namespaces: its VMM sees only its own files; none: it can do what the daemon's user can" }),
    memory_mib: z.int(),
    vcpus: z.int(),
    disk_mib: z.int().nullable().meta({ description: "null: what it writes stays in its memory" }),
    kernels: z.array(z.string()).meta({ description: "Warm interpreters for eval" }),
    metadata,
    created_at_unix: unixSeconds,
    last_active_unix: unixSeconds,
    expires_at_unix: unixSeconds.nullable(),
    idle_timeout_secs: z.int().nullable(),
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
    guest_addr: z.string().meta({ description: "Always empty: guests are reached through the daemon" }),
    last_branch_memory_path: z.string().nullable(),
    warnings,
  })
  .meta({ id: "Sandbox" });

const lifetime = {
  ttl_secs: z.int().min(1).max(MAX_SECS).nullable().optional().meta({ description: "It ends so long after now; null: never" }),
  idle_timeout_secs: z.int().min(1).max(MAX_SECS).nullable().optional().meta({ description: "It ends when nobody used it for so long" }),
  on_timeout: onTimeout.optional(),
  auto_resume: autoResume.optional(),
};

const forkFields = {
  n: z.int().min(1).max(MAX_FORK).default(1),
  env: env.optional(),
  metadata: metadata.optional(),
  network: setNetwork.optional().meta({ description: "Without it, what the snapshot says" }),
  shares: z.array(share).max(MAX_SHARES).optional().meta({
    description: "Only through the Unix socket, or with scope admin below share_roots; without it, those of the sandbox it descends from",
  }),
  ...lifetime,
  ...limits,
};

export const createSandboxes = z
  .strictObject({
    snapshot_tag: name,
    ...forkFields,
    name: name.optional().meta({ description: "Only with n = 1" }),
    per_item: z.boolean().default(false).meta({ description: "Answer 207 with an outcome per child instead of all or nothing" }),
    ...plumbing,
  })
  .refine((request) => request.name === undefined || request.n === 1, { path: ["name"], message: "is only possible with n = 1" })
  .meta({ id: "CreateSandboxes" });

const forkOutcome = z.union([z.strictObject({ sandbox: sandboxInfo }), z.strictObject({ error: problem })]).meta({ id: "ForkOutcome" });

export const forkOutcomes = z.strictObject({ results: z.array(forkOutcome) }).meta({ id: "ForkOutcomes" });

export const forkSandbox = z
  .strictObject({
    ...forkFields,
    tag: name.optional().meta({ description: "Keeps the snapshot under this tag; without it, it goes when nothing needs it any more" }),
  })
  .meta({ id: "ForkSandbox" });

export const updateSandbox = z
  .strictObject({ name: name.nullable().optional(), metadata: metadata.optional(), ...lifetime })
  .meta({ id: "UpdateSandbox" });

export const listSandboxes = z.strictObject({
  ...page,
  tag: name.optional().meta({ description: "Only forks of this snapshot" }),
  state: z
    .string()
    .transform((text) => text.split(","))
    .pipe(z.array(sandboxState))
    .optional()
    .meta({ description: "Comma-separated; without it, running, paused and suspended" }),
  metadata: metadataFilter,
});

export const deleteSandboxes = z.strictObject({ tag: name.optional(), all: flag });

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

export const logsQuery = z.strictObject({
  source: z.enum(["console", "agent", "vmm"]).default("console"),
  tail: z.coerce.number().int().min(0).max(100_000).optional().meta({ description: "Only the last lines" }),
  follow: flag,
});

export type SandboxInfo = z.infer<typeof sandboxInfo>;
export type Share = z.infer<typeof share>;
export type SandboxState = z.infer<typeof sandboxState>;
export type CreateSandboxes = z.infer<typeof createSandboxes>;
export type ForkSandbox = z.infer<typeof forkSandbox>;
export type UpdateSandbox = z.infer<typeof updateSandbox>;
export type ListSandboxes = z.infer<typeof listSandboxes>;
export type DeleteSandboxes = z.infer<typeof deleteSandboxes>;
export type ForkOutcomes = z.infer<typeof forkOutcomes>;
export type SandboxStats = z.infer<typeof sandboxStats>;
export type LogsQuery = z.infer<typeof logsQuery>;
