// Opens a pack in an OCI registry: its manifest and signatures; blobs are fetched on demand.

import { ForkdError } from "../errors.ts";
import type { BlobSource } from "../oci/blob-download.ts";
import { fetchManifest } from "../oci/manifest.ts";
import type { ImageReference } from "../oci/reference.ts";
import { RegistryClient } from "../oci/registry-client.ts";
import { parseArtifact } from "./artifact.ts";
import type { Layer } from "./artifact.ts";
import type { HttpOpts } from "./http-client.ts";
import { digestOf } from "../util/digest.ts";

/** A remote pack; only the digests of these two are trusted so far */
export type RemotePack = { manifest: Buffer; signatures: Buffer | undefined; source: BlobSource };

export type Limits = { configMediaType: string; maxManifestBytes: number; maxSignaturesBytes: number };

/** @param sha256 of the registry's manifest, if the index states it */
export async function openRegistryPack(
  from: ImageReference,
  sha256: string | undefined,
  limits: Limits,
  opts: HttpOpts,
): Promise<RemotePack> {
  const client = new RegistryClient({ ...opts, host: from.host, repository: from.repository });
  const { data, digest } = await fetchManifest(client, from.digest ?? from.tag, from.canonical);
  if (sha256 !== undefined && digest !== `sha256:${sha256}`)
    throw new ForkdError("DIGEST_MISMATCH", `Refused ${from.canonical}: it is ${digest}, and the index says sha256:${sha256}.`);
  const { config, signatures } = parseArtifact(data, limits.configMediaType, from.canonical);
  return {
    manifest: await small(client, config, limits.maxManifestBytes),
    signatures: signatures && (await small(client, signatures, limits.maxSignaturesBytes)),
    source: client,
  };
}

async function small(client: RegistryClient, { digest, size }: Layer, limit: number): Promise<Buffer> {
  const what = digest.slice(0, 19);
  if (size > limit) throw new ForkdError("PACK_INVALID", `Refused the blob ${what}: it has ${size} bytes, more than ${limit}.`);
  const { response, data } = await client.read(`blobs/${digest}`, limit);
  if (!response.ok) throw client.failure(`The registry answered ${response.status} for the blob ${what}.`);
  if (digestOf(data) !== digest) throw new ForkdError("DIGEST_MISMATCH", `Refused the blob ${what}: its content has another digest.`);
  return data;
}
