import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { bufferBlob } from "../../src/hub/local-blob.ts";
import { digestOf } from "../../src/util/digest.ts";
import { openRegistryPack } from "../../src/hub/oci-pull.ts";
import { pushToRegistry } from "../../src/hub/oci-push.ts";
import type { Parcel, PushOpts } from "../../src/hub/oci-push.ts";
import { PushMemory } from "../../src/hub/push-memory.ts";
import { downloadBlob } from "../../src/oci/blob-download.ts";
import { parseReference } from "../../src/oci/reference.ts";
import { startFront } from "../image/helpers/front.ts";
import { makeImage } from "../image/helpers/oci.ts";
import { PASSWORD, USER, hasRegistry, startRegistry } from "../image/helpers/registry.ts";
import { tempDir } from "../image/helpers/temp-home.ts";
import { startGate } from "./helpers/gate.ts";

const skip = (await hasRegistry()) ? false : "docker-registry is not installed";
const MIB = 1024 ** 2;
const MEDIA = "application/vnd.forkd.test+json";
const LIMITS = { configMediaType: MEDIA, maxManifestBytes: MIB, maxSignaturesBytes: 1000 };

const BASE = [randomBytes(2 * MIB), randomBytes(MIB), randomBytes(1000)];
const DELTA = [randomBytes(200_000), randomBytes(1000)];

function parcelOf(contents: readonly Buffer[], signatures?: Buffer): Parcel {
  const blobs = contents.map((data) => ({ ...bufferBlob(data), mediaType: "application/vnd.forkd.test.blob" }));
  const data = Buffer.from(JSON.stringify(blobs.map(({ digest, size }) => ({ digest, size }))));
  return { manifest: { mediaType: MEDIA, data }, signatures, blobs };
}

async function push(host: string, name: string, parcel: Parcel, opts: Partial<PushOpts> = {}) {
  return pushToRegistry(parseReference(`${host}/${name}`), parcel, { memory: new PushMemory(), ...opts });
}

async function pull(t: TestContext, host: string, name: string, parcel: Parcel, opts: object = {}): Promise<void> {
  const remote = await openRegistryPack(parseReference(`${host}/${name}`), undefined, LIMITS, opts);
  assert.deepEqual(remote.manifest, parcel.manifest.data);
  assert.deepEqual(remote.signatures, parcel.signatures);
  const dir = await tempDir(t);
  for (const [at, blob] of parcel.blobs.entries()) {
    const path = join(dir, String(at));
    await downloadBlob(join(dir, "cache"), remote.source, blob, path, {});
    assert.equal(digestOf(await readFile(path)), blob.digest);
  }
}

test("a pushed pack can be pulled, and a pack that builds on it sends only its own parts", { skip }, async (t) => {
  const registry = await startRegistry(t);
  const gate = await startGate(t, registry.host);
  const base = parcelOf(BASE);
  const branch = parcelOf([...BASE, ...DELTA], Buffer.from("[signature]"));
  const first = await push(gate.host, "team/agent:base", base);
  assert.ok(first.sentBytes === first.bytes && first.bytes > 3 * MIB);
  const before = gate.received();
  const second = await push(gate.host, "team/agent:branch", branch);
  const delta = DELTA.reduce((sum, { length }) => sum + length, 0);
  assert.ok(gate.received() - before < 1.2 * delta, `${gate.received() - before} bytes for ${delta}`);
  assert.equal(gate.received() - before, second.sentBytes);
  assert.deepEqual((await push(gate.host, "team/agent:again", branch)).digest, second.digest);
  await pull(t, gate.host, "team/agent:branch", branch);
  await pull(t, gate.host, `team/agent@${first.digest}`, base);
});

test("blobs of another repository are mounted without sending them", { skip }, async (t) => {
  const registry = await startRegistry(t);
  const memory = new PushMemory();
  const parcel = parcelOf(BASE);
  await push(registry.host, "one:v1", parcel, { memory });
  const { sentBytes } = await push(registry.host, "two:v1", parcel, { memory });
  assert.ok(sentBytes < 2000, `${sentBytes}`);
  await pull(t, registry.host, "two:v1", parcel);
});

test("an interrupted push is resumed, and its tag is set when all blobs are there", { skip }, async (t) => {
  const registry = await startRegistry(t);
  const stop = new AbortController();
  const parcel = parcelOf([...BASE, randomBytes(4 * MIB)]);
  const memory = new PushMemory();
  const gate = await startGate(t, registry.host, {
    drop: ({ method, nth }) => {
      if (method !== "PATCH" || nth < 4 || stop.signal.aborted) return undefined;
      stop.abort();
      return "at once";
    },
  });
  const opts = { memory, chunkBytes: 1.5 * MIB };
  await assert.rejects(push(gate.host, "agent:v1", parcel, { ...opts, signal: stop.signal }), { code: "CANCELLED" });
  const find = openRegistryPack(parseReference(`${gate.host}/agent:v1`), undefined, LIMITS, {});
  await assert.rejects(find, { code: "NOT_FOUND" });
  await push(gate.host, "agent:v1", parcel, opts);
  const total = parcel.blobs.reduce((sum, { size }) => sum + size, 0);
  // each chunk once, and the interrupted one a second time
  assert.ok(gate.received() < total + 2 * opts.chunkBytes + 10_000, `${gate.received()} of ${total}`);
  await pull(t, registry.host, "agent:v1", parcel);
});

test("a registry with a login requires it for push and pull", { skip }, async (t) => {
  const registry = await startRegistry(t, { auth: "htpasswd" });
  const login = { username: USER, password: PASSWORD };
  const parcel = parcelOf(BASE);
  await assert.rejects(push(registry.host, "agent:v1", parcel), { code: "REGISTRY_AUTH" });
  await push(registry.host, "agent:v1", parcel, login);
  await assert.rejects(pull(t, registry.host, "agent:v1", parcel), { code: "REGISTRY_AUTH" });
  await pull(t, registry.host, "agent:v1", parcel, login);
});

test("the token request is limited to this repository and those that are mounted from", { skip }, async (t) => {
  const registry = await startRegistry(t);
  const scopes: string[][] = [];
  const tokens = await startFront(t, undefined, ({ url, authorization }, res) => {
    assert.equal(authorization, `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString("base64")}`);
    scopes.push(new URL(url, "http://tokens").searchParams.getAll("scope"));
    res.end(JSON.stringify({ token: "t0ken" }));
    return true;
  });
  const challenge = `Bearer realm="http://${tokens.host}/token",service="test"`;
  const gate = await startGate(t, registry.host, {
    answer: ({ authorization }) =>
      authorization === "Bearer t0ken" ? undefined : { status: 401, headers: { "www-authenticate": challenge } },
  });
  const opts = { memory: new PushMemory(), username: USER, password: PASSWORD };
  const parcel = parcelOf(BASE);
  await push(gate.host, "one:v1", parcel, opts);
  await push(gate.host, "two:v1", parcel, opts);
  await pull(t, gate.host, "two:v1", parcel, opts);
  const asked = [...new Set(scopes.map((scope) => scope.join(" ")))];
  assert.deepEqual(asked, ["repository:one:pull,push", "repository:two:pull,push repository:one:pull", "repository:two:pull"]);
});

test("an image, a digest other than the index has, and a missing manifest are refused", { skip }, async (t) => {
  const registry = await startRegistry(t);
  await registry.push("app", "v1", makeImage([{ tar: Buffer.alloc(1024), packed: Buffer.alloc(1024) }]));
  const open = (name: string, sum?: string) => openRegistryPack(parseReference(`${registry.host}/${name}`), sum, LIMITS, {});
  await assert.rejects(open("app:v1"), { code: "PACK_INVALID", hint: /image pull/ });
  await assert.rejects(open("app:v2"), { code: "NOT_FOUND" });
  await push(registry.host, "agent:v1", parcelOf(BASE));
  await assert.rejects(open("agent:v1", "00".repeat(32)), { code: "DIGEST_MISMATCH" });
  await push(registry.host, "agent:v2", parcelOf(BASE, randomBytes(2000)));
  await assert.rejects(open("agent:v2"), { code: "PACK_INVALID" });
});
