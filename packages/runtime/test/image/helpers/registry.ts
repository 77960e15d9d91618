// A real registry on loopback for the duration of a test.

import { access } from "node:fs/promises";
import { OwnRegistry } from "../../../../../bench/src/registry-process.ts";
import { patience } from "../../../../../tests/helpers/patience.ts";
import type { TestContext } from "node:test";
import type { Blob, TestImage } from "./oci.ts";

export const USER = "alice";
export const PASSWORD = "s3cret-pass";
/** bcrypt of PASSWORD */
const HTPASSWD = `${USER}:$2b$04$61WSIRUWMDpeouh9/5MV9uE31CqY84VGZpIQp21v3xPYUPlup7f96\n`;

type Headers = Record<string, string>;

export type Registry = {
  host: string;
  push: (repository: string, tag: string, image: TestImage | { index: Blob; images: TestImage[] }) => Promise<void>;
};

export async function hasRegistry(): Promise<boolean> {
  return access("/usr/bin/docker-registry").then(
    () => true,
    () => false,
  );
}

export async function startRegistry(t: TestContext, opts: { auth?: "htpasswd" } = {}): Promise<Registry> {
  const headers: Headers =
    opts.auth === "htpasswd" ? { authorization: `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString("base64")}` } : {};
  const htpasswd = opts.auth === "htpasswd" ? HTPASSWD : undefined;
  const registry = await OwnRegistry.start({ htpasswd, headers, readyWithinMs: patience() });
  t.after(async () => registry[Symbol.asyncDispose]());
  const { host } = registry;
  return {
    host,
    push: async (repository, tag, image) => {
      const base = `http://${host}/v2/${repository}`;
      const images = "index" in image ? image.images : [image];
      for (const one of images) {
        for (const blob of one.blobs) await pushBlob(base, blob, headers);
        await pushManifest(base, "index" in image ? one.manifest.digest : tag, one.manifest, one.mediaType, headers);
      }
      if ("index" in image) await pushManifest(base, tag, image.index, "application/vnd.oci.image.index.v1+json", headers);
    },
  };
}

async function pushBlob(base: string, blob: Blob, headers: Headers): Promise<void> {
  const start = await fetch(`${base}/blobs/uploads/`, { method: "POST", headers });
  if (start.status !== 202) throw new Error(`upload refused: ${start.status} ${await start.text()}`);
  const location = new URL(start.headers.get("location") ?? "", base);
  location.searchParams.set("digest", blob.digest);
  const done = await fetch(location, {
    method: "PUT",
    headers: { ...headers, "content-type": "application/octet-stream" },
    body: new Uint8Array(blob.data),
  });
  if (done.status !== 201) throw new Error(`blob refused: ${done.status} ${await done.text()}`);
}

async function pushManifest(base: string, tag: string, manifest: Blob, mediaType: string, headers: Headers): Promise<void> {
  const done = await fetch(`${base}/manifests/${tag}`, {
    method: "PUT",
    headers: { ...headers, "content-type": mediaType },
    body: new Uint8Array(manifest.data),
  });
  if (done.status !== 201) throw new Error(`manifest refused: ${done.status} ${await done.text()}`);
}
