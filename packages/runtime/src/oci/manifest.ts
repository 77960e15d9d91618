// Gets the unmodified manifest of a tag or digest from a registry.

import { digestOf } from "../util/digest.ts";
import { ForkdError } from "../errors.ts";
import { MEDIA_INDEX, MEDIA_MANIFEST } from "./schema.ts";
import type { RegistryClient } from "./registry-client.ts";

const MAX_MANIFEST_BYTES = 4 * 1024 ** 2;

/** @param what owner of the manifest, for messages */
export async function fetchManifest(client: RegistryClient, tagOrDigest: string, what: string): Promise<{ digest: string; data: Buffer }> {
  const accept = [...MEDIA_INDEX, ...MEDIA_MANIFEST].join(", ");
  const { response, data } = await client.read(`manifests/${tagOrDigest}`, MAX_MANIFEST_BYTES, { accept });
  if (!response.ok) {
    if (response.status === 404)
      throw new ForkdError("NOT_FOUND", `There is no ${what} in its registry.`, { hint: "Check the name and the tag." });
    throw new ForkdError(
      response.status === 401 || response.status === 403 ? "REGISTRY_AUTH" : "REGISTRY_FAILED",
      `The registry answered ${response.status} for ${what}.`,
    );
  }
  const digest = digestOf(data);
  const expected = tagOrDigest.startsWith("sha256:") ? tagOrDigest : response.headers.get("docker-content-digest");
  if (expected?.startsWith("sha256:") && expected !== digest)
    throw new ForkdError("DIGEST_MISMATCH", `Refused ${what}: its manifest does not have the digest ${expected}.`);
  return { digest, data };
}
