// Hubs: snapshots that go to and come from other machines.

import * as z from "zod";
import { flag } from "./common.ts";
import { preparePack, unpackQuery } from "./pack.ts";

const login = {
  username: z.string().max(1024).optional(),
  password: z
    .string()
    .max(64 * 1024)
    .optional(),
  insecure_http: z.boolean().optional().meta({ description: "Plain http to a server that is not the daemon's machine" }),
};

const hub = z
  .string()
  .max(4096)
  .optional()
  .meta({ description: "Address of the index in which aliases are looked up; without it, the daemon's setting hub_url" });

export const pushSnapshot = z
  .strictObject({
    to: z.string().min(1).max(8192).meta({ description: "oci://HOST/NAME[:TAG], or an https address that takes PUT" }),
    level: preparePack.shape.level,
    sign: preparePack.shape.sign,
    ...login,
  })
  .meta({ id: "PushSnapshot" });

export const pushedSnapshot = z
  .strictObject({
    to: z.string().meta({ description: "Where it is now, without a query" }),
    snapshot: z.string().meta({ description: "Id of the snapshot" }),
    digest: z.string().nullable().meta({ description: "Of the manifest in the registry, if it is one" }),
    sha256: z.string().meta({ description: "For an index: of the file, or of the manifest in the registry" }),
    manifest_sha256: z.string().meta({ description: "For an index: of the pack's own manifest" }),
    bytes: z.int().meta({ description: "Of all that it is made of" }),
    sent_bytes: z.int().meta({ description: "Of what the other side did not have" }),
  })
  .meta({ id: "PushedSnapshot" });

export const pullSnapshot = z
  .strictObject({
    from: z
      .string()
      .min(1)
      .max(8192)
      .meta({ description: "oci://HOST/NAME[:TAG][@sha256:DIGEST], an https address, or OWNER/NAME[@VERSION] of a hub" }),
    tag: unpackQuery.shape.tag,
    force: z.boolean().optional().meta({ description: "Take the tag away from the snapshot that has it" }),
    hub,
    ...login,
    login_host: z
      .string()
      .max(300)
      .optional()
      .meta({ description: "HOST[:PORT] that the login is for; needed with a name, as the index says which server has it" }),
  })
  .meta({ id: "PullSnapshot" });

export const hubQuery = z.strictObject({
  hub,
  insecure_http: flag.meta({ description: "Plain http to a server that is not the daemon's machine" }),
});

const hubVersion = z.strictObject({
  version: z.string(),
  url: z.string().meta({ description: "Without a query" }),
  sha256: z.string().nullable(),
  manifest_sha256: z.string().nullable(),
  key: z.string().nullable().meta({ description: "Fingerprint of the key that must have signed it" }),
  size_bytes: z.int().nullable(),
  memory_mib: z.number().nullable(),
  base_image: z.string().nullable(),
  created_at: z.string().nullable(),
});

export const hubListing = z
  .strictObject({
    hub: z.string().meta({ description: "Without a query" }),
    packages: z.array(
      z.strictObject({
        name: z.string(),
        description: z.string().nullable(),
        latest: z.string().nullable().meta({ description: "The version that is taken when none is named" }),
        versions: z.array(hubVersion),
      }),
    ),
  })
  .meta({ id: "HubListing" });

export type PushSnapshot = z.infer<typeof pushSnapshot>;
export type PushedSnapshot = z.infer<typeof pushedSnapshot>;
export type PullSnapshot = z.infer<typeof pullSnapshot>;
export type HubQuery = z.infer<typeof hubQuery>;
export type HubListing = z.infer<typeof hubListing>;
