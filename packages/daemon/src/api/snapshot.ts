// Snapshots: frozen warm VMs.

import * as z from "zod";
import { language } from "./exec.ts";
import { env, flag, metadata, metadataFilter, name, page, unixSeconds, warnings } from "./common.ts";
import { networkPolicy, setNetwork } from "./network.ts";
import { sandboxInfo } from "./sandbox.ts";

const snapshotStatus = z.enum(["writing", "ready", "failed"]).meta({ id: "SnapshotStatus" });

export const snapshotInfo = z
  .strictObject({
    tag: z.string(),
    id: z.string(),
    dir: z.string(),
    status: snapshotStatus,
    bootable: z.boolean().meta({ description: "Whether it can be forked on this host, now" }),
    created_at_unix: unixSeconds,
    image: z.string().nullable(),
    memory_mib: z.int(),
    vcpus: z.int(),
    disk_mib: z.int().nullable().meta({ description: "null: what guests write stays in their memory" }),
    kernels: z.array(z.string()),
    depth: z.int().meta({ description: "Number of deltas down to the base" }),
    parent_tag: z.string().nullable(),
    branched_from: z.string().nullable(),
    pause_ms: z.number().nullable().meta({ description: "How long the source stood still" }),
    delta_bytes: z.int().nullable().meta({ description: "What the branch stored" }),
    diff_ms: z.number().nullable(),
    diff_physical_bytes: z.int().nullable(),
    diff_logical_bytes: z.int().nullable(),
    ephemeral: z.boolean().meta({ description: "It goes when nothing needs it any more" }),
    pool: z.int().meta({ description: "How many VMMs wait for it, started in advance" }),
    network: networkPolicy.nullable().meta({ description: "What its forks may connect to; null while it is being written" }),
    metadata,
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
      .max(3)
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
    image: name.optional().meta({ description: "A stored image; without it, the daemon's default image" }),
    memory_mib: z
      .int()
      .min(64)
      .max(1024 * 1024)
      .optional(),
    vcpus: z.int().min(1).max(64).optional(),
    disk_mib: z
      .int()
      .min(16)
      .max(1024 * 1024)
      .optional()
      .meta({ description: "Room for what the guest writes, on the host's disk; without it, that is in the guest's memory" }),
    warm_up: warmUp.optional().meta({ description: "Without it, a python kernel where the image has python3" }),
    env: env.optional(),
    metadata: metadata.optional(),
    network: setNetwork
      .optional()
      .meta({ description: "During the warm-up, and for its forks unless they say otherwise; none without it" }),
    kernel: z.string().optional(),
    rootfs: z.string().optional(),
    rw: z.boolean().optional(),
    tap: z.string().optional(),
    boot_wait_secs: z.number().optional(),
  })
  .meta({ id: "CreateSnapshot" });

export const updateSnapshot = z
  .strictObject({ tag: name.optional(), metadata: metadata.optional(), pool: z.int().min(0).max(1000).optional() })
  .meta({ id: "UpdateSnapshot" });

export const listSnapshots = z.strictObject({ ...page, status: snapshotStatus.optional(), metadata: metadataFilter });

export const deleteSnapshot = z
  .strictObject({
    cascade: flag.meta({ description: "Also removes the snapshots that build on it" }),
    force: flag.meta({ description: "Takes the tag away; what is still needed of it stays until nothing needs it" }),
  })
  .refine((query) => !(query.cascade && query.force), "cascade and force exclude each other");

export const snapshotDetails = z
  .strictObject({
    tag: z.string(),
    id: z.string(),
    dir: z.string(),
    created_at_unix: unixSeconds,
    memory_logical_bytes: z.int(),
    memory_physical_bytes: z.int(),
    vmstate_bytes: z.int(),
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

export const compactSnapshot = z.strictObject({ to: name }).meta({ id: "CompactSnapshot" });

export const branchRequest = z
  .strictObject({
    tag: name.optional().meta({ description: "Without it, one is made up" }),
    mode: z.enum(["full", "diff", "live"]).optional().meta({ description: "All three are our one way: a short pause and a delta" }),
    diff: z.boolean().optional(),
    live: z.boolean().optional(),
    measure_diff: z.boolean().optional(),
    wait: z.boolean().default(true).meta({ description: "false: answer 202 as soon as the source runs again" }),
    parent_tag: name.optional(),
    metadata: metadata.optional(),
  })
  .meta({ id: "Branch" });

export const forkedSandboxes = z.strictObject({ snapshot: snapshotInfo, sandboxes: z.array(sandboxInfo) }).meta({ id: "ForkedSandboxes" });

const treeSandbox = z
  .strictObject({ id: z.string(), name: z.string().nullable(), state: z.string(), metadata })
  .meta({ id: "TreeSandbox" });

const treeNode = z
  .strictObject({
    id: z.string(),
    tag: z.string().nullable().meta({ description: "null: only kept because something needs it" }),
    status: snapshotStatus,
    branched_from: z.string().nullable(),
    sandboxes: z.array(treeSandbox),
    get snapshots() {
      return z.array(treeNode);
    },
  })
  .meta({ id: "TreeNode" });

export const tree = z.strictObject({ roots: z.array(treeNode) }).meta({ id: "Tree" });

export type SnapshotInfo = z.infer<typeof snapshotInfo>;
export type SnapshotStatus = z.infer<typeof snapshotStatus>;
export type CreateSnapshot = z.infer<typeof createSnapshot>;
export type UpdateSnapshot = z.infer<typeof updateSnapshot>;
export type ListSnapshots = z.infer<typeof listSnapshots>;
export type DeleteSnapshot = z.infer<typeof deleteSnapshot>;
export type SnapshotDetails = z.infer<typeof snapshotDetails>;
export type BranchRequest = z.infer<typeof branchRequest>;
export type ForkedSandboxes = z.infer<typeof forkedSandboxes>;
export type TreeNode = z.infer<typeof treeNode>;
export type Tree = z.infer<typeof tree>;
