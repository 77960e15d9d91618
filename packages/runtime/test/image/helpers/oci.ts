// Images made for tests, as the documents and blobs of the OCI format.

import { createHash } from "node:crypto";

export type Blob = { digest: string; data: Buffer };
export type TestImage = { manifest: Blob; blobs: Blob[]; mediaType: string };

export function blobOf(data: Buffer | string): Blob {
  const bytes = Buffer.from(data);
  return { digest: `sha256:${createHash("sha256").update(bytes).digest("hex")}`, data: bytes };
}

export function makeImage(
  layers: readonly { tar: Buffer; packed: Buffer; media?: string }[],
  opts: { architecture?: string; config?: object; docker?: boolean } = {},
): TestImage {
  const packed = layers.map((layer) => blobOf(layer.packed));
  const config = blobOf(
    JSON.stringify({
      os: "linux",
      architecture: opts.architecture ?? "amd64",
      config: opts.config ?? {},
      rootfs: { type: "layers", diff_ids: layers.map((layer) => blobOf(layer.tar).digest) },
    }),
  );
  const kind = opts.docker ? "application/vnd.docker.distribution.manifest.v2+json" : "application/vnd.oci.image.manifest.v1+json";
  const configKind = opts.docker ? "application/vnd.docker.container.image.v1+json" : "application/vnd.oci.image.config.v1+json";
  const layerKind = opts.docker ? "application/vnd.docker.image.rootfs.diff.tar.gzip" : "application/vnd.oci.image.layer.v1.tar+gzip";
  const manifest = blobOf(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: kind,
      config: { mediaType: configKind, digest: config.digest, size: config.data.length },
      layers: packed.map((blob, i) => ({ mediaType: layers[i]?.media ?? layerKind, digest: blob.digest, size: blob.data.length })),
    }),
  );
  return { manifest, blobs: [config, ...packed], mediaType: kind };
}

export function makeIndex(images: readonly { image: TestImage; architecture: string }[]): Blob {
  return blobOf(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: "application/vnd.oci.image.index.v1+json",
      manifests: images.map(({ image, architecture }) => ({
        mediaType: image.mediaType,
        digest: image.manifest.digest,
        size: image.manifest.data.length,
        platform: { os: "linux", architecture },
      })),
    }),
  );
}
