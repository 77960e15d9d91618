// Snapshots: frozen warm VMs.

import * as z from "zod";
import { env, flag, metadata, metadataFilter, name, NO_EFFECT, page, reference, unixSeconds, warnings } from "./common.ts";
import { language } from "./exec.ts";
import { networkPolicy, setNetwork } from "./network.ts";
import type { Route } from "./route.ts";

const MAX_SECS = 10 * 366 * 24 * 3600;

const snapshotStatus = z.enum(["writing", "ready", "failed"]).meta({ id: "SnapshotStatus" });

const visibility = z
  .enum(["private", "public"])
  .meta({ id: "Visibility", description: "public: other projects may fork it, as PROJECT/TAG" });

/** Fields of a snapshot that is made */
export const snapshotAccess = {
  visibility: visibility
    .optional()
    .meta({ description: "private: only for its project, which is the default; public: others may fork it" }),
  expires_in_secs: z
    .int()
    .min(1)
    .max(MAX_SECS)
    .nullable()
    .optional()
    .meta({ description: "It is removed after so many seconds, as soon as nothing needs it; null: never" }),
};

export const description = z.string().min(1).max(1024).meta({ description: "What the snapshot is for; at most 1024 characters" });

export const snapshotInfo = z
  .strictObject({
    tag: z.string(),
    project: z.string(),
    visibility,
    expires_at_unix: unixSeconds.nullable().meta({ description: "It is removed then, or later when nothing needs it; null: never" }),
    id: z.string(),
    dir: z.string(),
    status: snapshotStatus,
    bootable: z.boolean().meta({ description: "Whether it can be forked on this host, now" }),
    created_at_unix: unixSeconds,
    image: z.string().nullable(),
    memory_mib: z.int(),
    vcpus: z.int(),
    disk_mib: z.int().nullable().meta({ description: "null: writes of guests stay in their memory" }),
    kernels: z.array(z.string()),
    depth: z.int().meta({ description: "Number of deltas down to the base" }),
    parent_tag: z.string().nullable(),
    branched_from: z.string().nullable(),
    pause_ms: z.int().nullable().meta({ description: "Length of the source's pause, rounded up" }),
    pause_us: z.int().nullable().meta({ description: "The same in microseconds" }),
    delta_bytes: z.int().nullable().meta({ description: "What the branch stored" }),
    diff_ms: z.int().nullable().meta({ description: "Of the older API: pause_ms" }),
    diff_physical_bytes: z.int().nullable().meta({ description: "Of the older API: delta_bytes" }),
    diff_logical_bytes: z.int().nullable().meta({ description: "Of the older API: the guest's memory, of a branch" }),
    ephemeral: z.boolean().meta({ description: "It is removed when nothing needs it" }),
    pool: z.int().meta({ description: "How many VMMs wait for it, started in advance" }),
    network: networkPolicy.nullable().meta({ description: "What its forks may connect to; null while it is being written" }),
    metadata,
    description: description.nullable(),
    error: z.string().nullable().meta({ description: "Why its status is failed" }),
    warning: z.string().nullable(),
    warnings,
  })
  .meta({ id: "Snapshot" });

const warmUp = z
  .strictObject({
    exec: z
      .array(z.array(z.string()).min(1).max(4096))
      .max(64)
      .optional()
      .meta({ description: "Programs, in order; each must exit with 0" }),
    kernels: z
      .array(
        z.strictObject({
          language,
          cwd: z.string().min(1).max(4096).optional().meta({ description: "Where it begins; without it, /" }),
          code: z
            .string()
            .max(8 * 1024 * 1024)
            .optional(),
        }),
      )
      .max(language.options.length)
      .optional()
      .meta({ description: "Interpreters to keep warm, with the code that warms them" }),
    timeout_secs: z
      .number()
      .positive()
      .max(24 * 3600)
      .optional()
      .meta({ description: "For each program and each code" }),
  })
  .meta({ id: "WarmUp" });

export const createSnapshot = z
  .strictObject({
    tag: name,
    image: reference.optional().meta({ description: "A stored image; without it, the daemon's default image" }),
    memory_mib: z
      .int()
      .min(64)
      .max(1024 * 1024)
      .optional()
      .meta({ description: "Memory of the guest" }),
    vcpus: z.int().min(1).max(64).optional().meta({ description: "CPUs of the guest" }),
    cpu: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/)
      .optional()
      .meta({
        description:
          "`baseline`: runs on every host; `host`: all that this host's processor has; or a CPU model of the engine. Without it, with KVM the newest model of which this host lacks nothing, else baseline",
      }),
    hugepages: z.boolean().optional().meta({
      description:
        "Forks map a copy of its memory in huge pages, which takes all of `memory_mib` on the host while one of them runs; see operations",
    }),
    disk_mib: z
      .int()
      .min(16)
      .max(1024 * 1024)
      .optional()
      .meta({ description: "Size of the writable disk, on the host's disk; without it, writes stay in the guest's memory" }),
    warm_up: warmUp.optional().meta({ description: "Without it, a python kernel where the image has python3" }),
    env: env.optional(),
    metadata: metadata.optional(),
    description: description.optional(),
    ...snapshotAccess,
    network: setNetwork
      .optional()
      .meta({ description: "During the warm-up, and for its forks unless they say otherwise; none without it" }),
    kernel: z.string().optional().meta({ description: "Of the older API: refused without an image, else without effect" }),
    rootfs: z.string().optional().meta({ description: "Of the older API: refused without an image, else without effect" }),
    rw: z.boolean().optional().meta({ description: NO_EFFECT }),
    tap: z.string().optional().meta({ description: NO_EFFECT }),
    boot_wait_secs: z.number().optional().meta({ description: NO_EFFECT }),
  })
  .meta({ id: "CreateSnapshot" });

const updateSnapshot = z
  .strictObject({
    tag: name.optional().meta({ description: "The new tag" }),
    metadata: metadata.optional().meta({ description: "Replaces the metadata" }),
    description: description.nullable().optional().meta({ description: "Replaces the description; null removes it" }),
    ...snapshotAccess,
    pool: z.int().min(0).max(1000).optional().meta({ description: "Number of VMMs that are started in advance" }),
  })
  .meta({ id: "UpdateSnapshot" });

const listSnapshots = z.strictObject({
  ...page,
  status: snapshotStatus.optional().meta({ description: "Only those with this status" }),
  metadata: metadataFilter,
});

const deleteSnapshot = z
  .strictObject({
    cascade: flag.meta({ description: "Also removes the snapshots that build on it" }),
    force: flag.meta({ description: "Removes the tag; data that other snapshots or sandboxes need stays until then" }),
  })
  .refine((query) => !(query.cascade && query.force), "cascade and force exclude each other");

const snapshotDetails = z
  .strictObject({
    tag: z.string(),
    id: z.string(),
    dir: z.string(),
    created_at_unix: unixSeconds,
    memory_logical_bytes: z.int(),
    memory_physical_bytes: z.int(),
    vmstate_bytes: z.int(),
    isolation: z.enum(["kvm", "emulated"]).meta({ description: "Of its forks" }),
    cpu: z.string().meta({ description: "Model of its processor" }),
    cpu_vendor: z.string().nullable().meta({ description: "A host of another vendor cannot fork it; null: emulated, or not known" }),
    hugepages: z.boolean().meta({ description: "Whether its forks map its memory in huge pages" }),
    disk_mib: z.int().nullable(),
    disk_layers: z.int().meta({ description: "Number of files that its disk is stacked of; 0 without a disk" }),
    disk_physical_bytes: z.int().meta({ description: "What these take of the host's disk" }),
    disk_own_bytes: z.int().meta({ description: "How much of that no other snapshot and no sandbox shares" }),
    parent_tag: z.string().nullable(),
    parent_content_hash: z.string().nullable(),
    chain_depth: z.int(),
    ancestors: z.array(z.string()),
    dependents: z.array(z.string()),
    sandboxes: z.array(z.string()),
  })
  .meta({ id: "SnapshotDetails" });

const compactSnapshot = z.strictObject({ to: name }).meta({ id: "CompactSnapshot" });

const treeSandbox = z
  .strictObject({
    id: z.string(),
    node: z.string().meta({ description: "Code of the node that has it" }),
    name: z.string().nullable(),
    state: z.string(),
    metadata,
    memory_mib: z.int(),
    network_mode: networkPolicy.shape.mode,
    created_at_unix: unixSeconds,
    expires_at_unix: unixSeconds.nullable(),
  })
  .meta({ id: "TreeSandbox" });

const treeNode = z
  .strictObject({
    id: z.string(),
    nodes: z.array(z.string()).meta({ description: "Codes of the nodes that hold it" }),
    project: z.string(),
    tag: z.string().nullable().meta({ description: "null: only kept because something needs it" }),
    status: snapshotStatus,
    branched_from: z.string().nullable(),
    memory_mib: z.int(),
    created_at_unix: unixSeconds,
    sandboxes: z.array(treeSandbox),
    get snapshots() {
      return z.array(treeNode);
    },
  })
  .meta({ id: "TreeNode" });

export const tree = z.strictObject({ roots: z.array(treeNode) }).meta({ id: "Tree" });

const byTag = z.strictObject({ tag: name });

export const snapshotRoutes = {
  listSnapshots: {
    method: "GET",
    path: "/v1/snapshots",
    scope: "read",
    summary: "Snapshots",
    query: listSnapshots,
    responses: { 200: z.array(snapshotInfo) },
    acrossProjects: true,
  },
  createSnapshot: {
    method: "POST",
    path: "/v1/snapshots",
    scope: "admin",
    summary: "Boots an image, warms it and freezes it",
    body: createSnapshot,
    responses: { 201: snapshotInfo },
    progress: true,
    statusOf: { EXISTS: 400 },
  },
  getSnapshot: {
    method: "GET",
    path: "/v1/snapshots/:tag",
    scope: "read",
    summary: "One snapshot",
    params: byTag,
    responses: { 200: snapshotInfo },
  },
  updateSnapshot: {
    method: "PATCH",
    path: "/v1/snapshots/:tag",
    scope: "admin",
    summary: "Renames a snapshot, replaces its metadata, sets the number of prepared VMMs",
    params: byTag,
    body: updateSnapshot,
    responses: { 200: snapshotInfo },
  },
  deleteSnapshot: {
    method: "DELETE",
    path: "/v1/snapshots/:tag",
    scope: "admin",
    summary: "Removes a snapshot; 409 lists its dependents",
    params: byTag,
    query: deleteSnapshot,
    responses: { 204: "empty" },
  },
  getSnapshotDetails: {
    method: "GET",
    path: "/v1/snapshots/:tag/info",
    scope: "read",
    summary: "Sizes and lineage of a snapshot",
    params: byTag,
    responses: { 200: snapshotDetails },
  },
  compactSnapshot: {
    method: "POST",
    path: "/v1/snapshots/:tag/compact",
    scope: "admin",
    summary: "Copies a snapshot into one that builds on no other",
    params: byTag,
    body: compactSnapshot,
    responses: { 200: snapshotInfo },
  },
} as const satisfies Record<string, Route>;

export type SnapshotInfo = z.infer<typeof snapshotInfo>;
export type SnapshotStatus = z.infer<typeof snapshotStatus>;
export type CreateSnapshot = z.infer<typeof createSnapshot>;
export type UpdateSnapshot = z.infer<typeof updateSnapshot>;
export type ListSnapshots = z.infer<typeof listSnapshots>;
export type DeleteSnapshot = z.infer<typeof deleteSnapshot>;
export type SnapshotDetails = z.infer<typeof snapshotDetails>;
export type TreeNode = z.infer<typeof treeNode>;
export type Tree = z.infer<typeof tree>;
