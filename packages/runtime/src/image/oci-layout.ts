// Reads an OCI image layout: index.json, and blobs named by their digests.

import { digestOf } from "../util/digest.ts";
import { ForkdError } from "../errors.ts";
import { lazyStream, readMember } from "./archive-index.ts";
import { PLATFORM } from "../host/platform.ts";
import type { ArchiveFiles, ImportedImage } from "./archive-index.ts";
import { OciConfig, OciIndex, OciManifest, choosePlatform, isIndex, parseDocument } from "../oci/schema.ts";
import { toImageConfig } from "./oci-config.ts";
import type { Descriptor } from "../oci/schema.ts";

const MAX_DOCUMENT = 8 * 1024 ** 2;
const MAX_NESTING = 3;
const OCI_PLATFORM = `linux/${PLATFORM.packages}`;

export async function readOciLayout(files: ArchiveFiles): Promise<ImportedImage> {
  const manifest = await resolveIndex(files, await readMember(files, "index.json", MAX_DOCUMENT), 0);
  const oci = parseDocument(OciConfig, await readBlob(files, manifest.config), `the configuration in ${files.label}`);
  const config = toImageConfig(oci, manifest.layers.length, files.label);
  for (const layer of manifest.layers) await sizeOfBlob(files, layer);
  const layers = manifest.layers.map((layer, i) => ({
    label: `layer ${i + 1} of ${files.label}`,
    open: () => lazyStream(() => files.open(blobPath(layer))),
    diffId: oci.rootfs.diff_ids[i],
    digest: layer.digest,
    size: layer.size,
  }));
  return { format: "oci-layout", config, layers };
}

/** An index may contain another index, as build tools write for multi-platform images */
async function resolveIndex(files: ArchiveFiles, data: Buffer, depth: number): Promise<OciManifest> {
  if (depth >= MAX_NESTING) throw new ForkdError("IMAGE_INVALID", `Cannot use ${files.label}: its indexes are nested too deep.`);
  const index = parseDocument(OciIndex, data, `index.json of ${files.label}`);
  const document = await readBlob(files, choosePlatform(index, OCI_PLATFORM, files.label));
  if (isIndex(document)) return resolveIndex(files, document, depth + 1);
  return parseDocument(OciManifest, document, `the manifest in ${files.label}`);
}

async function readBlob(files: ArchiveFiles, blob: Descriptor): Promise<Buffer> {
  await sizeOfBlob(files, blob);
  const data = await readMember(files, blobPath(blob), MAX_DOCUMENT);
  if (digestOf(data) !== blob.digest) {
    throw new ForkdError("DIGEST_MISMATCH", `Refused ${files.label}: the content of ${blobPath(blob)} has another digest.`);
  }
  return data;
}

async function sizeOfBlob(files: ArchiveFiles, blob: Descriptor): Promise<void> {
  const size = await files.size(blobPath(blob));
  if (size === undefined)
    throw new ForkdError("IMAGE_INVALID", `Cannot use ${files.label}: it holds no file ${JSON.stringify(blobPath(blob))}.`);
  if (size !== blob.size)
    throw new ForkdError("DIGEST_MISMATCH", `Refused ${files.label}: ${blobPath(blob)} has ${size} bytes instead of ${blob.size}.`);
}

function blobPath(blob: Descriptor): string {
  return `blobs/${blob.digest.replace(":", "/")}`;
}
