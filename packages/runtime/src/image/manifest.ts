// The manifest.json of an image.

import { createHash } from "node:crypto";
import { z } from "zod";
import { PLATFORM } from "../host/platform.ts";

const Digest = z.string().regex(/^sha256:[0-9a-f]{64}$/);

export const ImageConfig = z.object({
  env: z.record(z.string(), z.string()),
  /** absolute path */
  cwd: z.string().startsWith("/"),
  /** name, uid or uid:gid; empty is root */
  user: z.string(),
  entrypoint: z.array(z.string()),
  cmd: z.array(z.string()),
});
export type ImageConfig = z.infer<typeof ImageConfig>;

export const ImageSource = z.discriminatedUnion("kind", [
  z.object({
    kind: z.literal("packages"),
    suite: z.string(),
    packages: z.array(z.string()),
    /** hash of all inputs of the build */
    build_key: z.string(),
  }),
  z.object({
    kind: z.literal("oci"),
    reference: z.string(),
    /** digest of the platform's manifest */
    digest: Digest,
  }),
  z.object({
    kind: z.literal("import"),
    /** base name of the archive or folder */
    file: z.string(),
    format: z.enum(["docker-archive", "oci-layout", "rootfs"]),
  }),
  z.object({
    kind: z.literal("pack"),
    /** id of the snapshot that it was unpacked with */
    snapshot: z.string(),
  }),
]);
export type ImageSource = z.infer<typeof ImageSource>;

export const ImageManifest = z.object({
  version: z.literal(1),
  id: Digest,
  created_at: z.iso.datetime(),
  architecture: z.literal(PLATFORM.packages),
  rootfs: z.object({
    bytes: z.int().positive(),
    sha256: z.string().regex(/^[0-9a-f]{64}$/),
  }),
  config: ImageConfig,
  source: ImageSource,
});
export type ImageManifest = z.infer<typeof ImageManifest>;

/** Configuration of a build without settings */
export const DEFAULT_CONFIG: ImageConfig = { env: {}, cwd: "/", user: "", entrypoint: [], cmd: [] };

/**
 * The identity of an image: its root file system and its configuration. Two images may have the same root file system and different
 * configurations, so the digest of the root file system is not enough.
 */
export function imageId(rootfsSha256: string, config: ImageConfig): string {
  const env = Object.entries(config.env).toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const content = [PLATFORM.packages, rootfsSha256, env, config.cwd, config.user, config.entrypoint, config.cmd];
  return `sha256:${createHash("sha256").update(JSON.stringify(content)).digest("hex")}`;
}
