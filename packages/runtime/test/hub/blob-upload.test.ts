import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { uploadBlob } from "../../src/hub/blob-upload.ts";
import { fileBlob } from "../../src/hub/local-blob.ts";
import type { LocalBlob } from "../../src/hub/local-blob.ts";
import { RegistryClient } from "../../src/oci/registry-client.ts";
import { PASSWORD, USER, hasRegistry, startRegistry } from "../image/helpers/registry.ts";
import { tempDir } from "../image/helpers/temp-home.ts";
import { startGate } from "./helpers/gate.ts";

const skip = (await hasRegistry()) ? false : "docker-registry is not installed";
const MIB = 1024 ** 2;

async function makeBlob(t: TestContext, size: number): Promise<LocalBlob> {
  const data = randomBytes(size);
  const path = join(await tempDir(t), "blob");
  await writeFile(path, data);
  return fileBlob(path, { digest: `sha256:${createHash("sha256").update(data).digest("hex")}`, size });
}

async function stored(host: string, repository: string, blob: LocalBlob): Promise<boolean> {
  const response = await fetch(`http://${host}/v2/${repository}/blobs/${blob.digest}`);
  const hash = createHash("sha256").update(Buffer.from(await response.arrayBuffer()));
  return response.ok && `sha256:${hash.digest("hex")}` === blob.digest;
}

test("a blob is sent once: an existing one is skipped, one of another repository is mounted", { skip }, async (t) => {
  const registry = await startRegistry(t);
  const gate = await startGate(t, registry.host);
  const blob = await makeBlob(t, 3 * MIB);
  const one = new RegistryClient({ host: gate.host, repository: "team/one", push: true });
  const two = new RegistryClient({ host: gate.host, repository: "team/two", push: true });
  assert.equal(await uploadBlob(one, blob), "sent");
  assert.ok(gate.received() >= blob.size);
  assert.ok(await stored(registry.host, "team/one", blob));
  const before = gate.received();
  assert.equal(await uploadBlob(one, blob), "there");
  assert.equal(await uploadBlob(two, blob, { mountFrom: "team/one" }), "mounted");
  assert.equal(gate.received(), before);
  assert.ok(await stored(registry.host, "team/two", blob));
  assert.equal(await uploadBlob(two, await makeBlob(t, MIB), { mountFrom: "team/one" }), "sent");
});

test("progress counts each received byte once, also when chunks are sent again", { skip }, async (t) => {
  const registry = await startRegistry(t);
  const blob = await makeBlob(t, 5 * MIB);
  // before the registry receives it, so that it still has its state
  const gate = await startGate(t, registry.host, { drop: ({ method, nth }) => (method === "PATCH" && nth === 3 ? "at once" : undefined) });
  const client = new RegistryClient({ host: gate.host, repository: "big", push: true });
  let bytes = 0;
  assert.equal(await uploadBlob(client, blob, { chunkBytes: MIB, onBytes: (more) => (bytes += more) }), "sent");
  assert.equal(bytes, blob.size);
  assert.ok(await stored(registry.host, "big", blob));
  assert.deepEqual(gate.ranges(), [
    "0-1048575",
    "1048576-2097151",
    "2097152-3145727",
    "2097152-3145727",
    "3145728-4194303",
    "4194304-5242879",
  ]);
});

test("a registry that forgets an interrupted upload gets the complete blob", { skip }, async (t) => {
  const registry = await startRegistry(t);
  const blob = await makeBlob(t, 3 * MIB);
  const gate = await startGate(t, registry.host, { drop: ({ method, nth }) => (method === "PATCH" && nth === 2 ? "half way" : undefined) });
  const client = new RegistryClient({ host: gate.host, repository: "big", push: true });
  assert.equal(await uploadBlob(client, blob, { chunkBytes: MIB }), "sent");
  assert.ok(await stored(registry.host, "big", blob));
});

test("a cancelled upload is resumed where it stopped", { skip }, async (t) => {
  const registry = await startRegistry(t);
  const blob = await makeBlob(t, 4 * MIB);
  const stop = new AbortController();
  const gate = await startGate(t, registry.host, {
    drop: ({ method, nth }) => {
      if (method !== "PATCH" || nth !== 3 || stop.signal.aborted) return undefined;
      stop.abort();
      return "at once";
    },
  });
  let kept: string | undefined;
  const take = (): string | undefined => {
    const url = kept;
    kept = undefined;
    return url;
  };
  const session = { take, leave: (url: string) => void (kept = url) };
  const opts = { host: gate.host, repository: "big", push: true };
  const first = new RegistryClient({ ...opts, signal: stop.signal });
  await assert.rejects(uploadBlob(first, blob, { chunkBytes: MIB, session, signal: stop.signal }), { code: "CANCELLED" });
  assert.equal(await uploadBlob(new RegistryClient(opts), blob, { chunkBytes: MIB, session }), "sent");
  assert.equal(kept, undefined);
  assert.deepEqual(gate.ranges(), ["0-1048575", "1048576-2097151", "2097152-3145727", "2097152-3145727", "3145728-4194303"]);
  assert.ok(await stored(registry.host, "big", blob));
});

test("a registry that accepts no chunks gets the blob in one request", { skip }, async (t) => {
  const registry = await startRegistry(t);
  const blob = await makeBlob(t, 3 * MIB);
  const gate = await startGate(t, registry.host, { answer: ({ method }) => (method === "PATCH" ? { status: 405 } : undefined) });
  const client = new RegistryClient({ host: gate.host, repository: "big", push: true });
  assert.equal(await uploadBlob(client, blob, { chunkBytes: MIB }), "sent");
  assert.ok(await stored(registry.host, "big", blob));
});

test("a push needs the right password, and the error names the reason", { skip }, async (t) => {
  const registry = await startRegistry(t, { auth: "htpasswd" });
  const blob = await makeBlob(t, 1000);
  const login = { host: registry.host, repository: "app", push: true, username: USER };
  await assert.rejects(uploadBlob(new RegistryClient({ ...login, password: "wrong" }), blob), { code: "REGISTRY_AUTH" });
  assert.equal(await uploadBlob(new RegistryClient({ ...login, password: PASSWORD }), blob), "sent");
});

test("a blob that does not match its digest is refused by the registry", { skip }, async (t) => {
  const registry = await startRegistry(t);
  const blob = { ...(await makeBlob(t, 1000)), open: (await makeBlob(t, 1000)).open };
  const client = new RegistryClient({ host: registry.host, repository: "app", push: true });
  await assert.rejects(uploadBlob(client, blob), { code: "REGISTRY_FAILED", message: /400 DIGEST_INVALID/ });
});
