// A pack as an artifact of an OCI registry: its manifest is the configuration, each blob is a layer.

import * as z from "zod";
import { ForkdError, messageOf } from "../errors.ts";
import { Descriptor } from "../oci/schema.ts";
import { schemaProblem } from "../util/schema-problem.ts";

const ARTIFACT_TYPE = "application/vnd.forkd.snapshot.v1";
export const SIGNATURES_MEDIA_TYPE = "application/vnd.forkd.snapshot.signatures.v1+json";
export const OCI_MANIFEST_MEDIA_TYPE = "application/vnd.oci.image.manifest.v1+json";

const layer = Descriptor.extend({ mediaType: z.string() });

const artifact = z.object({
  schemaVersion: z.literal(2),
  artifactType: z.string().optional(),
  config: layer,
  layers: z.array(layer).min(1).max(100_000),
});

export type Layer = z.infer<typeof layer>;
export type Artifact = { config: Layer; signatures: Layer | undefined };

/** Deterministic: the same pack gives the same bytes, so it has no time and no origin */
export function artifactManifest(config: Layer, layers: readonly Layer[]): Buffer {
  const plain = ({ mediaType, digest, size }: Layer): Layer => ({ mediaType, digest, size });
  return Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: OCI_MANIFEST_MEDIA_TYPE,
      artifactType: ARTIFACT_TYPE,
      config: plain(config),
      layers: layers.map(plain),
    }),
  );
}

export function parseArtifact(data: Buffer, configMediaType: string, what: string): Artifact {
  let parsed: z.infer<typeof artifact>;
  try {
    parsed = artifact.parse(JSON.parse(data.toString("utf8")));
  } catch (error) {
    const why = error instanceof z.ZodError ? schemaProblem(error) : messageOf(error);
    throw noSnapshot(what, why, error);
  }
  // Older registries drop unknown fields, and the artifact type is newer than the type of the configuration.
  if (parsed.config.mediaType !== configMediaType) throw noSnapshot(what, `it is ${parsed.artifactType ?? parsed.config.mediaType}`);
  return { config: parsed.config, signatures: parsed.layers.find(({ mediaType }) => mediaType === SIGNATURES_MEDIA_TYPE) };
}

function noSnapshot(what: string, why: string, cause?: unknown): ForkdError {
  return new ForkdError("PACK_INVALID", `There is no snapshot of forkd at ${what}: ${why}.`, {
    hint: "Images are pulled with 'forkd image pull'.",
    cause,
  });
}
