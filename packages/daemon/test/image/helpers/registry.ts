// A real registry on loopback for the time of a test.

import { spawn } from "node:child_process";
import { access, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { tempDir } from "./temp-home.ts";
import type { Blob, TestImage } from "./oci.ts";

export const USER = "alice";
export const PASSWORD = "s3cret-pass";
/** bcrypt of PASSWORD */
const HTPASSWD = `${USER}:$2b$04$61WSIRUWMDpeouh9/5MV9uE31CqY84VGZpIQp21v3xPYUPlup7f96\n`;

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
  const dir = await tempDir(t);
  const port = await freePort();
  await writeFile(join(dir, "htpasswd"), HTPASSWD);
  const auth = opts.auth === "htpasswd" ? `auth:\n  htpasswd:\n    realm: test\n    path: ${join(dir, "htpasswd")}\n` : "";
  const config = `version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: ${join(dir, "data")}\nhttp:\n  addr: 127.0.0.1:${port}\n${auth}`;
  await writeFile(join(dir, "config.yml"), config);
  const child = spawn("/usr/bin/docker-registry", ["serve", join(dir, "config.yml")], {
    stdio: "ignore",
    env: { ...process.env, OTEL_TRACES_EXPORTER: "none" },
  });
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  t.after(async () => {
    child.kill("SIGTERM");
    await exited;
  });
  const host = `127.0.0.1:${port}`;
  const headers: Record<string, string> =
    opts.auth === "htpasswd" ? { authorization: `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString("base64")}` } : {};
  await answering(`http://${host}/v2/`, headers);
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

async function pushBlob(base: string, blob: Blob, headers: Record<string, string>): Promise<void> {
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

async function pushManifest(base: string, tag: string, manifest: Blob, mediaType: string, headers: Record<string, string>): Promise<void> {
  const done = await fetch(`${base}/manifests/${tag}`, {
    method: "PUT",
    headers: { ...headers, "content-type": mediaType },
    body: new Uint8Array(manifest.data),
  });
  if (done.status !== 201) throw new Error(`manifest refused: ${done.status} ${await done.text()}`);
}

async function answering(url: string, headers: Record<string, string>): Promise<void> {
  for (let i = 0; i < 200; i++) {
    try {
      const response = await fetch(url, { headers });
      await response.body?.cancel();
      if (response.ok) return;
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
    }
    await sleep(50);
  }
  throw new Error("the registry did not start within 10 s");
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
