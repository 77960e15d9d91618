// The parts of OCI image documents, and of Docker's equivalents, that forkd reads.

import { z } from "zod";
import { ForkdError, messageOf } from "../errors.ts";
import { PLATFORM } from "../host/platform.ts";
import { schemaProblem } from "../util/schema-problem.ts";

export const MEDIA_INDEX = ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
export const MEDIA_MANIFEST = ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];

const MAX_LAYERS = 500;

export const Descriptor = z.object({
  mediaType: z.string().optional(),
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/, "only sha256 digests are supported"),
  size: z.int().nonnegative(),
});
export type Descriptor = z.infer<typeof Descriptor>;

export const OciManifest = z.object({
  schemaVersion: z.literal(2),
  mediaType: z.string().optional(),
  config: Descriptor,
  layers: z.array(Descriptor).min(1).max(MAX_LAYERS),
});
export type OciManifest = z.infer<typeof OciManifest>;

export const OciIndex = z.object({
  schemaVersion: z.literal(2),
  manifests: z
    .array(
      Descriptor.extend({
        platform: z.object({ os: z.string(), architecture: z.string(), variant: z.string().optional() }).optional(),
        annotations: z.record(z.string(), z.string()).nullish(),
      }),
    )
    .max(1000),
});
export type OciIndex = z.infer<typeof OciIndex>;

export const OciConfig = z.object({
  os: z.string().optional(),
  architecture: z.string().optional(),
  config: z
    .object({
      Env: z.array(z.string()).nullish(),
      WorkingDir: z.string().nullish(),
      User: z.string().nullish(),
      Entrypoint: z.array(z.string()).nullish(),
      Cmd: z.array(z.string()).nullish(),
    })
    .nullish(),
  rootfs: z.object({ diff_ids: z.array(z.string().regex(/^sha256:[0-9a-f]{64}$/)).max(MAX_LAYERS) }),
});
export type OciConfig = z.infer<typeof OciConfig>;

/** Parses an untrusted document; `what` names it in errors */
export function parseDocument<T>(schema: z.ZodType<T>, data: Buffer, what: string): T {
  try {
    return schema.parse(JSON.parse(data.toString("utf8")));
  } catch (error) {
    const why = error instanceof z.ZodError ? schemaProblem(error) : messageOf(error);
    throw new ForkdError("IMAGE_INVALID", `Cannot use ${what}: ${why}.`, { cause: error });
  }
}

/** Whether a document is an index rather than an image */
export function isIndex(data: Buffer): boolean {
  try {
    const value: unknown = JSON.parse(data.toString("utf8"));
    return typeof value === "object" && value !== null && "manifests" in value;
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}

/** The entry of an index for a platform such as linux/amd64 */
export function choosePlatform(index: OciIndex, platform: string, what: string): Descriptor {
  const [os = "linux", architecture = PLATFORM.packages] = platform.split("/");
  const match = index.manifests.find((entry) => entry.platform?.os === os && entry.platform.architecture === architecture);
  if (match !== undefined) return match;
  // a layout with one image often has no platform; its configuration has it
  const only = index.manifests.length === 1 ? index.manifests[0] : undefined;
  if (only !== undefined && only.platform === undefined) return only;
  const offered = index.manifests
    .map((entry) => (entry.platform ? `${entry.platform.os}/${entry.platform.architecture}` : "unknown"))
    .join(", ");
  throw new ForkdError("IMAGE_INVALID", `${what} has no image for ${platform}: it offers ${offered || "none"}.`);
}
