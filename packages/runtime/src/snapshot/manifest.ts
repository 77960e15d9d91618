// The manifest of a snapshot.

import * as z from "zod";
import { LAYER_ID } from "../disk/layer.ts";
import { LANGUAGES } from "../agent/kernel/language.ts";
import { networkPolicy, NO_NETWORK } from "../egress/policy.ts";

export const SNAPSHOT_VERSION = 1;
/** Name that the engine gives itself; a fork checks that the host has this engine */
export const ENGINE_NAME = /^[a-z][a-z0-9-]{0,31}$/;

const shape = z.strictObject({
  engine: z.string().regex(ENGINE_NAME),
  engineVersion: z.string(),
  machine: z.string(),
  /** absent: all devices of the machine type */
  devices: z.literal("few").optional(),
  cpu: z.string(),
  /** CPU model, with KVM; absent in older snapshots */
  vendor: z.string().optional(),
  features: z.array(z.string()).optional(),
  accelerator: z.enum(["kvm", "tcg"]),
  vcpus: z.int().min(1),
  memoryMiB: z.int().min(1),
  /** absent: forks map the memory file itself */
  hugepages: z.literal(true).optional(),
});

const memory = z.discriminatedUnion("kind", [
  /** complete memory as a sparse file */
  z.strictObject({ kind: z.literal("base"), bytes: z.int() }),
  /** pages that differ from another snapshot's memory */
  z.strictObject({
    kind: z.literal("delta"),
    base: z.string(),
    pages: z.int(),
    /** bytes of its own delta file */
    bytes: z.int(),
    /**
     * bytes of the delta files shared with earlier branches of its source, oldest first; absent: none. Its own file has
     * the pages that changed since
     */
    earlier: z.array(z.int()).min(1).optional(),
  }),
]);

const disk = z.strictObject({
  sizeMiB: z.int().min(1),
  /** ids, lowest first; each is a file in the snapshot's folder, hard-linked between all snapshots with this layer */
  layers: z.array(z.string().regex(LAYER_ID)).min(1),
});

export const snapshotManifest = z.strictObject({
  version: z.literal(SNAPSHOT_VERSION),
  id: z.string(),
  tag: z.string(),
  /** original name of a snapshot that was unpacked from a pack; packs made of it keep that name */
  name: z.string().optional(),
  createdAt: z.iso.datetime(),
  shape,
  imageId: z.string(),
  guestKernelId: z.string(),
  /** key of the agent's channel, hex */
  agentKey: z.string().regex(/^[0-9a-f]{32}$/),
  /** protocol version of the agent in its memory; 2 in snapshots without this field */
  agentProtocol: z.int().optional(),
  memory,
  /** null: writes of the guest are in its memory; so it is in snapshots from before disks */
  disk: disk.nullable().default(null),
  deviceStateBytes: z.int(),
  kernels: z.array(
    z.strictObject({
      language: z.enum(LANGUAGES),
      /** its name, unless it is the default of its language */
      context: z.string().optional(),
      cwd: z.string().optional(),
      version: z.string(),
      /** how the interpreter's random generators are reseeded at a fork */
      reseed: z.enum(["memory", "message"]),
      /** whether an eval was running when the snapshot was taken */
      busy: z.boolean(),
    }),
  ),
  env: z.record(z.string(), z.string()),
  /** rate of its clock relative to the host's before the freeze; absent: not measured on this host */
  clock: z.strictObject({ driftPpm: z.int(), overMs: z.int() }).optional(),
  /** the guest's monotonic clock when it was stopped for a branch, or slightly less */
  stoppedAtMs: z.number().optional(),
  /** default network policy of its forks */
  network: networkPolicy.default(NO_NETWORK),
  /** mount points of shares in its memory; their sources are not stored */
  mounts: z.array(z.string()).default([]),
  /** the source sandbox of a branch */
  branchedFrom: z.string().nullable(),
  depth: z.int().min(0),
});

export type SnapshotManifest = z.infer<typeof snapshotManifest>;
