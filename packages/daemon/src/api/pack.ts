// Packs: snapshots that travel, and the keys that sign them.

import * as z from "zod";
import { flag, name, unixSeconds } from "./common.ts";
import { snapshotInfo } from "./snapshot.ts";

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
export const packQuery = z.strictObject({
  level: z.coerce.number().pipe(level).optional(),
  sign: preparePack.shape.sign,
  without: z
    .string()
    .max(64 * MAX_WITHOUT)
    .transform((text) => text.split(","))
    .pipe(z.array(name).max(MAX_WITHOUT))
    .optional()
    .meta({ description: "Tags or ids of snapshots that the receiver has, separated by commas" }),
});

export const packInfo = z
  .strictObject({
    tag: z.string(),
    id: z.string(),
    manifest_digest: digest,
    level: z.int(),
    signed_by: z.array(z.string()).meta({ description: "Ids of keys" }),
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
  force: flag.meta({ description: "Take the tag away from the snapshot that has it" }),
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

export const keyInfo = z
  .strictObject({
    name: z.string(),
    id: z.string().meta({ description: "Fingerprint of the public key" }),
    kind: z.enum(["own", "trusted"]).meta({ description: "own: it can sign" }),
    public_key: z.string(),
    created_at_unix: unixSeconds,
  })
  .meta({ id: "Key" });

export const createKey = z
  .strictObject({
    name,
    public_key: z
      .string()
      .max(200)
      .optional()
      .meta({ description: "Somebody's public key, which is known from then on; without it, a key of the daemon's own is made" }),
  })
  .meta({ id: "CreateKey" });

export type PreparePack = z.infer<typeof preparePack>;
export type PackInfo = z.infer<typeof packInfo>;
export type UnpackQuery = z.infer<typeof unpackQuery>;
export type Unpacked = z.infer<typeof unpacked>;
export type KeyInfo = z.infer<typeof keyInfo>;
export type CreateKey = z.infer<typeof createKey>;
