// Pushes a pack to an OCI registry: existing blobs are not sent again, and the tag is set when all blobs are there.

import type { ImageReference } from "../oci/reference.ts";
import { RegistryClient } from "../oci/registry-client.ts";
import { inParallel } from "../util/in-parallel.ts";
import { countBytes, type Progress } from "../util/progress.ts";
import { OCI_MANIFEST_MEDIA_TYPE, SIGNATURES_MEDIA_TYPE, artifactManifest } from "./artifact.ts";
import { uploadBlob } from "./blob-upload.ts";
import type { HttpOpts } from "./http-client.ts";
import { bufferBlob } from "./local-blob.ts";
import { digestOf } from "../util/digest.ts";
import type { LocalBlob } from "./local-blob.ts";
import type { PushMemory } from "./push-memory.ts";
import { refusalOf } from "./refusal.ts";

const PARALLEL_UPLOADS = 3;

/** A pack, ready to be sent */
export type Parcel = {
  manifest: { mediaType: string; data: Buffer };
  signatures: Buffer | undefined;
  blobs: (LocalBlob & { mediaType: string })[];
};

/** `digest`: of the manifest in the registry; `bytes`: of all parts, `sentBytes`: of those that were missing */
export type Pushed = { digest: string; bytes: number; sentBytes: number };

export type PushOpts = HttpOpts & { memory: PushMemory; progress?: Progress | undefined; chunkBytes?: number | undefined };

export async function pushToRegistry(to: ImageReference, parcel: Parcel, opts: PushOpts): Promise<Pushed> {
  const { host, repository } = to;
  const { memory } = opts;
  const config = { mediaType: parcel.manifest.mediaType, ...bufferBlob(parcel.manifest.data) };
  const signatures = parcel.signatures === undefined ? [] : [{ mediaType: SIGNATURES_MEDIA_TYPE, ...bufferBlob(parcel.signatures) }];
  const layers = [...parcel.blobs, ...signatures];
  const all = [config, ...layers];
  const neighbours = new Map(all.map(({ digest }) => [digest, memory.neighbour(host, repository, digest)]));
  const alsoRead = [...new Set(neighbours.values())].filter((name) => name !== undefined);
  const client = new RegistryClient({ ...opts, host, repository, push: true, alsoRead });

  const bytes = all.reduce((sum, { size }) => sum + size, 0);
  let sentBytes = 0;
  const onBytes = countBytes(opts.progress, "Uploading", bytes);
  const upload = async (blob: LocalBlob, signal: AbortSignal): Promise<void> => {
    const { digest, size } = blob;
    const session = memory.session(host, repository, digest);
    const outcome = await uploadBlob(client, blob, {
      mountFrom: neighbours.get(digest),
      session,
      signal,
      onBytes,
      chunkBytes: opts.chunkBytes,
    });
    if (outcome === "sent") sentBytes += size;
    else onBytes(size);
    memory.isAt(host, repository, digest);
  };
  await inParallel(all, PARALLEL_UPLOADS, upload, opts.signal);
  const manifest = artifactManifest(config, layers);
  await putManifest(client, to, manifest);
  return { digest: digestOf(manifest), bytes: bytes + manifest.length, sentBytes: sentBytes + manifest.length };
}

async function putManifest(client: RegistryClient, to: ImageReference, data: Buffer): Promise<void> {
  const blob = bufferBlob(data);
  const body = { bytes: data.length, open: () => blob.open(0, data.length) };
  const response = await client.ask("PUT", `manifests/${to.tag}`, { headers: { "content-type": OCI_MANIFEST_MEDIA_TYPE }, body });
  const why = await refusalOf(response);
  if (!response.ok) throw client.failure(`Cannot write ${to.canonical}: its registry answered ${why}.`);
}
