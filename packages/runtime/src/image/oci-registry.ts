// Pulls an image from an OCI registry into the store.

import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { hexOf } from "../util/digest.ts";
import { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import { checkQualifiedName } from "../util/name.ts";
import { inParallel } from "../util/in-parallel.ts";
import { countBytes, type Progress } from "../util/progress.ts";
import { downloadBlob, forgetBlobs } from "../oci/blob-download.ts";
import { flattenLayers } from "./layers.ts";
import { fetchManifest } from "../oci/manifest.ts";
import { OciConfig, OciIndex, OciManifest, choosePlatform, isIndex, parseDocument } from "../oci/schema.ts";
import { toImageConfig } from "./oci-config.ts";
import type { Descriptor } from "../oci/schema.ts";
import { parseReference } from "../oci/reference.ts";
import { RegistryClient } from "../oci/registry-client.ts";
import { DEFAULT_MAX_BYTES } from "./squashfs.ts";
import type { ConfinementPolicy } from "../host/confined.ts";
import { PLATFORM } from "../host/platform.ts";
import { withStaging } from "../host/staging.ts";
import { ImageStore } from "./store.ts";
import type { StoredImage } from "./store.ts";

const MAX_CONFIG_BYTES = 8 * 1024 ** 2;
const PARALLEL_DOWNLOADS = 3;

export type PullOpts = {
  name: string;
  platform?: string;
  username?: string | undefined;
  password?: string | undefined;
  /** limit of the unpacked size in `bytes` */
  maxBytes?: number | undefined;
  /** plain http to a remote registry; for this machine it is always allowed */
  insecureHttp?: boolean | undefined;
  confinement?: ConfinementPolicy | undefined;
  signal?: AbortSignal | undefined;
  progress?: Progress | undefined;
};

/** Downloads are kept for the next attempt after a network failure, and removed when the image was invalid or is stored */
export async function pullImage(home: Home, reference: string, opts: PullOpts): Promise<StoredImage> {
  checkQualifiedName("Image name", opts.name);
  const ref = parseReference(reference);
  const maxBytes = opts.maxBytes ?? DEFAULT_MAX_BYTES;
  const platform = opts.platform ?? `linux/${PLATFORM.packages}`;
  const client = new RegistryClient({ ...opts, host: ref.host, repository: ref.repository });
  opts.progress?.({ step: `Asking ${ref.host} for ${ref.repository}` });
  const { digest, manifest } = await resolveManifest(client, ref.digest ?? ref.tag, platform, ref.canonical);
  if (manifest.config.size > MAX_CONFIG_BYTES)
    throw new ForkdError("IMAGE_INVALID", `Cannot use ${ref.canonical}: its configuration is larger than ${MAX_CONFIG_BYTES} bytes.`);
  const packed = manifest.layers.reduce((sum, layer) => sum + layer.size, 0);
  if (packed > maxBytes)
    throw new ForkdError("IMAGE_TOO_LARGE", `Refused ${ref.canonical}: its layers have ${packed} bytes, more than ${maxBytes}.`);

  const blobs = uniqueBlobs([manifest.config, ...manifest.layers]);
  try {
    const image = await withStaging(home, async (staging) => {
      const pathOf = (blob: Descriptor): string => join(staging, hexOf(blob.digest));
      await downloadAll(home, client, blobs, pathOf, opts);
      const config = parseDocument(OciConfig, await readFile(pathOf(manifest.config)), `the configuration of ${ref.canonical}`);
      const imageConfig = toImageConfig(config, manifest.layers.length, ref.canonical);
      const layers = manifest.layers.map((layer, i) => ({
        label: `layer ${i + 1} of ${ref.canonical}`,
        open: () => createReadStream(pathOf(layer), { highWaterMark: 1 << 20 }),
        diffId: config.rootfs.diff_ids[i],
      }));
      const rootfs = join(staging, "rootfs.squashfs");
      const { confinement, signal, progress } = opts;
      await flattenLayers(layers, rootfs, { maxBytes, whiteouts: true, confinement, signal, progress });
      const source = { kind: "oci" as const, reference: ref.canonical, digest };
      return new ImageStore(home).add({ rootfsTmpPath: rootfs, name: opts.name, config: imageConfig, source, signal: opts.signal });
    });
    await forgetBlobs(blobsDir(home), blobs);
    return image;
  } catch (error) {
    const isAborted = opts.signal?.aborted === true;
    const isNetwork = error instanceof ForkdError && (error.code === "REGISTRY_FAILED" || error.code === "REGISTRY_AUTH");
    if (!isAborted && !isNetwork) await forgetBlobs(blobsDir(home), blobs);
    if (isAborted && !(error instanceof ForkdError)) throw new ForkdError("CANCELLED", "The download was cancelled.", { cause: error });
    throw error;
  }
}

/** The platform's manifest and its digest, for a reference to a manifest or an index */
async function resolveManifest(
  client: RegistryClient,
  tagOrDigest: string,
  platform: string,
  what: string,
): Promise<{ digest: string; manifest: OciManifest }> {
  const top = await fetchManifest(client, tagOrDigest, what);
  if (!isIndex(top.data)) return { digest: top.digest, manifest: parseDocument(OciManifest, top.data, `the manifest of ${what}`) };
  const chosen = choosePlatform(parseDocument(OciIndex, top.data, `the index of ${what}`), platform, what);
  const image = await fetchManifest(client, chosen.digest, what);
  if (image.data.length !== chosen.size)
    throw new ForkdError("DIGEST_MISMATCH", `Refused ${what}: its manifest is not ${chosen.size} bytes long as the index states.`);
  return { digest: image.digest, manifest: parseDocument(OciManifest, image.data, `the manifest of ${what}`) };
}

async function downloadAll(
  home: Home,
  client: RegistryClient,
  blobs: readonly Descriptor[],
  pathOf: (blob: Descriptor) => string,
  opts: PullOpts,
): Promise<void> {
  const total = blobs.reduce((sum, blob) => sum + blob.size, 0);
  const onBytes = countBytes(opts.progress, "Downloading", total);
  const download = async (blob: Descriptor, signal: AbortSignal): Promise<void> =>
    downloadBlob(blobsDir(home), client, blob, pathOf(blob), { signal, onBytes });
  await inParallel(blobs, PARALLEL_DOWNLOADS, download, opts.signal);
}

function blobsDir(home: Home): string {
  return join(home.cache, "blobs");
}

function uniqueBlobs(blobs: readonly Descriptor[]): Descriptor[] {
  return [...new Map(blobs.map((blob) => [blob.digest, blob])).values()];
}
