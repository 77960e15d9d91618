// Hubs: snapshots that go to and come from other machines.

import * as z from "zod";
import { flag, name } from "./common.ts";
import { preparePack, unpacked, unpackQuery } from "./pack.ts";
import type { Route } from "./route.ts";

const login = {
  username: z.string().max(1024).optional().meta({ description: "For the registry or the web server" }),
  password: z
    .string()
    .max(64 * 1024)
    .optional()
    .meta({ description: "For the registry or the web server" }),
  insecure_http: z.boolean().optional().meta({ description: "Plain http to a server that is not the daemon's machine" }),
};

const hub = z
  .string()
  .max(4096)
  .optional()
  .meta({ description: "Address of the index in which aliases are looked up; without it, the daemon's setting hub_url" });

const pushSnapshot = z
  .strictObject({
    to: z.string().min(1).max(8192).meta({ description: "oci://HOST/NAME[:TAG], or an https address that takes PUT" }),
    level: preparePack.shape.level,
    sign: preparePack.shape.sign,
    ...login,
  })
  .meta({ id: "PushSnapshot" });

const pushedSnapshot = z
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

const pullSnapshot = z
  .strictObject({
    from: z
      .string()
      .min(1)
      .max(8192)
      .meta({ description: "oci://HOST/NAME[:TAG][@sha256:DIGEST], an https address, or OWNER/NAME[@VERSION] of a hub" }),
    tag: unpackQuery.shape.tag,
    force: z.boolean().optional().meta({ description: "Remove the tag from the snapshot that has it" }),
    keep_network: z.boolean().optional().meta({ description: unpackQuery.shape.keep_network.meta()?.description }),
    hub,
    ...login,
    login_host: z
      .string()
      .max(300)
      .optional()
      .meta({ description: "HOST[:PORT] that the login is for; needed with a name, as the index says which server has it" }),
  })
  .meta({ id: "PullSnapshot" });

const hubQuery = z.strictObject({
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

const hubListing = z
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

export const hubRoutes = {
  pushSnapshot: {
    method: "POST",
    path: "/v1/snapshots/:tag/push",
    scope: "admin",
    summary: "Sends a snapshot and its chain to an OCI registry or a web server; parts that are already there are not sent again",
    params: z.strictObject({ tag: name }),
    body: pushSnapshot,
    responses: { 201: pushedSnapshot },
    progress: true,
  },
  pullSnapshot: {
    method: "POST",
    path: "/v1/snapshots/pull",
    scope: "admin",
    summary: "Fetches a snapshot from an OCI registry, a web server or a hub; parts in the store are not fetched again",
    body: pullSnapshot,
    responses: { 201: unpacked },
    progress: true,
  },
  listHub: {
    method: "GET",
    path: "/v1/hub",
    scope: "admin",
    summary: "Lists the index of a hub",
    query: hubQuery,
    responses: { 200: hubListing },
  },
} as const satisfies Record<string, Route>;

export type PushSnapshot = z.infer<typeof pushSnapshot>;
export type PushedSnapshot = z.infer<typeof pushedSnapshot>;
export type PullSnapshot = z.infer<typeof pullSnapshot>;
export type HubQuery = z.infer<typeof hubQuery>;
export type HubListing = z.infer<typeof hubListing>;
