// What a snapshot is, on disk.

import * as z from "zod";
import { LAYER_ID } from "../disk/layer.ts";
import { LANGUAGES } from "../guest/language.ts";
import { networkPolicy, NO_NETWORK } from "../net/policy.ts";

export const SNAPSHOT_VERSION = 1;

const shape = z.strictObject({
  engine: z.literal("qemu"),
  /** version of QEMU that made it; an older one does not load it */
  engineVersion: z.string(),
  machine: z.string(),
  cpu: z.string(),
  accelerator: z.enum(["kvm", "tcg"]),
  vcpus: z.int().min(1),
  memoryMiB: z.int().min(1),
});

const memory = z.discriminatedUnion("kind", [
  /** the whole memory as a sparse file */
  z.strictObject({ kind: z.literal("base"), bytes: z.int() }),
  /** the pages that differ from another snapshot's memory */
  z.strictObject({ kind: z.literal("delta"), base: z.string(), pages: z.int(), bytes: z.int() }),
]);

const disk = z.strictObject({
  sizeMiB: z.int().min(1),
  /** ids, lowest first; each is a file in the snapshot's folder, the same one as in every other that has this layer */
  layers: z.array(z.string().regex(LAYER_ID)).min(1),
});

export const snapshotManifest = z.strictObject({
  version: z.literal(SNAPSHOT_VERSION),
  id: z.string(),
  tag: z.string(),
  /** what it was called where it came from, of one that came in a pack: its own packs go on calling it so */
  name: z.string().optional(),
  createdAt: z.iso.datetime(),
  shape,
  imageId: z.string(),
  guestKernelId: z.string(),
  /** key of the agent's channel, hex */
  agentKey: z.string().regex(/^[0-9a-f]{32}$/),
  /** what the agent in its memory speaks; snapshots from before this was written down speak 2 */
  agentProtocol: z.int().optional(),
  memory,
  /** null: what the guest writes is in its memory; so it is in snapshots from before there were disks */
  disk: disk.nullable().default(null),
  deviceStateBytes: z.int(),
  kernels: z.array(
    z.strictObject({
      language: z.enum(LANGUAGES),
      /** its name, where it is not the first of its language */
      context: z.string().optional(),
      cwd: z.string().optional(),
      version: z.string(),
      /** how the generators of the interpreter are reseeded at a fork */
      reseed: z.enum(["memory", "message"]),
      /** an eval was under way when the snapshot was taken */
      busy: z.boolean(),
    }),
  ),
  env: z.record(z.string(), z.string()),
  /** what its forks may connect to, unless they are made with something else */
  network: networkPolicy.default(NO_NETWORK),
  /** where folders of the host are mounted in its memory; which ones they were, it does not know */
  mounts: z.array(z.string()).default([]),
  /** the sandbox it was branched from */
  branchedFrom: z.string().nullable(),
  depth: z.int().min(0),
});

export type SnapshotManifest = z.infer<typeof snapshotManifest>;
