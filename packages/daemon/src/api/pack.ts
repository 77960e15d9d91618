// Packs: snapshots that travel, and the keys that sign them.

import * as z from "zod";
import { flag, name, unixSeconds } from "./common.ts";
import { snapshotInfo } from "./snapshot.ts";
import type { Route } from "./route.ts";

const MAX_WITHOUT = 1000;

const level = z.int().min(1).max(19).meta({ description: "Of zstd: 1 is fast, 19 is small; without it, 3" });
const digest = z.string().meta({ description: "sha256:…" });

export const preparePack = z
  .strictObject({
    level: level.optional(),
    sign: name.optional().meta({ description: "Name of one of the daemon's own keys" }),
    without: z
      .array(name)
      .max(MAX_WITHOUT)
      .optional()
      .meta({ description: "Tags or ids of snapshots that the receiver has: their data is left out" }),
  })
  .meta({ id: "PreparePack" });

/** The same in a query: `without` with commas */
const packQuery = z.strictObject({
  level: z.coerce.number().pipe(level).optional().meta({ description: level.meta()?.description }),
  sign: preparePack.shape.sign,
  without: z
    .string()
    .max(64 * MAX_WITHOUT)
    .transform((text) => text.split(","))
    .pipe(z.array(name).max(MAX_WITHOUT))
    .optional()
    .meta({ description: "Tags or ids of snapshots that the receiver has, separated by commas" }),
});

const packInfo = z
  .strictObject({
    tag: z.string(),
    id: z.string(),
    manifest_digest: digest,
    level: z.int(),
    signed_by: z.array(z.string()).meta({ description: "Ids of keys" }),
    isolation: z.enum(["kvm", "emulated"]).meta({ description: "kvm: it can be forked only where KVM works" }),
    cpu: z.string().meta({ description: "Model of the processor that it needs" }),
    cpu_vendor: z.string().nullable().meta({ description: "Vendor of the processor that it needs; null: any" }),
    snapshots: z.array(z.string()).meta({ description: "Ids of its chain, the snapshot itself last" }),
    bytes: z.int().meta({ description: "Of the file" }),
    content_bytes: z.int().meta({ description: "Of what is in it, before it was compressed" }),
    blobs: z.array(
      z.strictObject({
        kind: z.string(),
        digest,
        bytes: z.int(),
        content_bytes: z.int(),
        included: z.boolean().meta({ description: "false: the receiver has it" }),
      }),
    ),
  })
  .meta({ id: "Pack" });

export const unpackQuery = z.strictObject({
  tag: name.optional().meta({ description: "Without it, the name in the pack" }),
  force: flag.meta({ description: "Remove the tag from the snapshot that has it" }),
  keep_network: flag.meta({
    description:
      "Forks of it may connect to what the pack says, also where no known key signed it; never into private networks or to the host",
  }),
});

export const unpacked = z
  .strictObject({
    snapshot: snapshotInfo,
    added: z.array(z.string()).meta({ description: "Ids of the snapshots that were not here before" }),
    replaced: z.string().nullable().meta({ description: "Id of the snapshot that had the tag" }),
    signed_by: z.string().nullable().meta({ description: "Id of the known key that signed it" }),
    warnings: z.array(z.string()),
  })
  .meta({ id: "Unpacked" });

const keyInfo = z
  .strictObject({
    name: z.string(),
    id: z.string().meta({ description: "Fingerprint of the public key" }),
    kind: z.enum(["own", "trusted"]).meta({ description: "own: it can sign" }),
    public_key: z.string(),
    created_at_unix: unixSeconds,
  })
  .meta({ id: "Key" });

const createKey = z
  .strictObject({
    name,
    public_key: z
      .string()
      .max(200)
      .optional()
      .meta({ description: "Public key of another machine, to trust; without it, the daemon generates a key pair" }),
  })
  .meta({ id: "CreateKey" });

const byTag = z.strictObject({ tag: name });
const byKey = z.strictObject({ name: name.meta({ description: "Name of a key, or the beginning of its id" }) });
const MEDIA = "application/vnd.forkd.pack";

export const packRoutes = {
  preparePack: {
    method: "POST",
    path: "/v1/snapshots/:tag/pack",
    scope: "admin",
    summary: "Compresses a snapshot so that its pack can be read at once, and returns its contents",
    params: byTag,
    body: preparePack,
    responses: { 201: packInfo },
    progress: true,
  },
  readPack: {
    method: "GET",
    path: "/v1/snapshots/:tag/pack",
    scope: "admin",
    summary: "A snapshot and its dependencies as one file",
    params: byTag,
    query: packQuery,
    responses: { 200: "bytes" },
    media: MEDIA,
  },
  unpack: {
    method: "POST",
    path: "/v1/packs",
    scope: "admin",
    summary: "Imports a pack: it is verified completely and appears atomically or not at all",
    query: unpackQuery,
    body: "bytes",
    responses: { 201: unpacked },
    media: MEDIA,
  },
  listKeys: {
    method: "GET",
    path: "/v1/keys",
    scope: "operator",
    summary: "Lists signing keys and trusted keys",
    responses: { 200: z.array(keyInfo) },
  },
  createKey: {
    method: "POST",
    path: "/v1/keys",
    scope: "operator",
    summary: "Creates a signing key, or trusts a public key",
    body: createKey,
    responses: { 201: keyInfo },
  },
  getKey: {
    method: "GET",
    path: "/v1/keys/:name",
    scope: "operator",
    summary: "One key, without its private half",
    params: byKey,
    responses: { 200: keyInfo },
  },
  deleteKey: {
    method: "DELETE",
    path: "/v1/keys/:name",
    scope: "operator",
    summary: "Removes a key",
    params: byKey,
    responses: { 204: "empty" },
  },
} as const satisfies Record<string, Route>;

export type PreparePack = z.infer<typeof preparePack>;
export type PackInfo = z.infer<typeof packInfo>;
export type UnpackQuery = z.infer<typeof unpackQuery>;
export type Unpacked = z.infer<typeof unpacked>;
export type KeyInfo = z.infer<typeof keyInfo>;
export type CreateKey = z.infer<typeof createKey>;
