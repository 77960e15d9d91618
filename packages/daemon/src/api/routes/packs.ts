// Routes of packs and keys.

import * as z from "zod";
import { name } from "../common.ts";
import * as pack from "../pack.ts";
import type { Route } from "../route.ts";

const byTag = z.strictObject({ tag: name });
const byKey = z.strictObject({ name: name.meta({ description: "Name of a key, or the beginning of its id" }) });
const MEDIA = "application/vnd.forkd.pack";

export const packRoutes = {
  preparePack: {
    method: "POST",
    path: "/v1/snapshots/:tag/pack",
    scope: "admin",
    summary: "Compresses a snapshot, so that its pack can be read at once, and says what is in it",
    params: byTag,
    body: pack.preparePack,
    responses: { 201: pack.packInfo },
    progress: true,
  },
  readPack: {
    method: "GET",
    path: "/v1/snapshots/:tag/pack",
    scope: "admin",
    summary: "A snapshot with everything it needs, as one file",
    params: byTag,
    query: pack.packQuery,
    responses: { 200: "bytes" },
    media: MEDIA,
  },
  unpack: {
    method: "POST",
    path: "/v1/packs",
    scope: "admin",
    summary: "Takes a pack in: it is checked as a whole, and appears at once or not at all",
    query: pack.unpackQuery,
    body: "bytes",
    responses: { 201: pack.unpacked },
    media: MEDIA,
  },
  listKeys: {
    method: "GET",
    path: "/v1/keys",
    scope: "read",
    summary: "Keys that sign packs, and those that are known",
    responses: { 200: z.array(pack.keyInfo) },
  },
  createKey: {
    method: "POST",
    path: "/v1/keys",
    scope: "admin",
    summary: "Makes a key of the daemon's own, or makes somebody's public key known",
    body: pack.createKey,
    responses: { 201: pack.keyInfo },
  },
  getKey: {
    method: "GET",
    path: "/v1/keys/:name",
    scope: "read",
    summary: "One key; never its private half",
    params: byKey,
    responses: { 200: pack.keyInfo },
  },
  deleteKey: {
    method: "DELETE",
    path: "/v1/keys/:name",
    scope: "admin",
    summary: "Removes a key",
    params: byKey,
    responses: { 204: "empty" },
  },
} as const satisfies Record<string, Route>;
