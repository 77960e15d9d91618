// Packs of small snapshots from one store to another: through a registry, a web server, an index.

import assert from "node:assert/strict";
import { createHash, generateKeyPairSync } from "node:crypto";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { parsePlace } from "../../src/hub/place.ts";
import { openRemotePack } from "../../src/hub/pull.ts";
import type { Vouched } from "../../src/hub/pull.ts";
import { PushMemory } from "../../src/hub/push-memory.ts";
import { openPush } from "../../src/hub/push.ts";
import { PackCache } from "../../src/pack/cache.ts";
import { preparePack } from "../../src/pack/prepare.ts";
import type { PrepareOptions } from "../../src/pack/prepare.ts";
import { receivePack } from "../../src/pack/receive.ts";
import type { Received } from "../../src/pack/receive.ts";
import { signerOf } from "../../src/pack/signature.ts";
import { hasRegistry, startRegistry } from "../image/helpers/registry.ts";
import { FakeHome, HOST } from "../pack/fake.ts";
import { startFileServer } from "./helpers/file-server.ts";
import { startGate } from "./helpers/gate.ts";

const skip = (await hasRegistry()) ? false : "docker-registry is not installed";

async function push(home: FakeHome, tag: string, to: string, opts: PrepareOptions = {}) {
  await using pack = await preparePack(home.stores, tag, opts);
  return await openPush(to, { memory: new PushMemory() }).send(pack);
}

async function pull(
  home: FakeHome,
  from: string,
  vouched: Partial<Vouched> = {},
  signal = new AbortController().signal,
): Promise<Received> {
  const staging = await mkdtemp(join(home.dir, "staging-"));
  const place = parsePlace(from);
  assert.ok(place.kind !== "alias");
  try {
    const known = { place, sha256: undefined, manifestSha256: undefined, key: undefined, ...vouched };
    const source = await openRemotePack(home.stores.home, known, { staging, signal });
    try {
      return await receivePack(home.stores, source, { trust: { policy: "any", keys: new Set() }, host: HOST, signal });
    } finally {
      await source.close();
    }
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

async function same(a: FakeHome, b: FakeHome, tag: string): Promise<void> {
  assert.ok((await a.pack(tag)).equals(await b.pack(tag)), `${tag} is the same on both sides`);
}

test("a branch is pushed as its difference, and pulled as the missing parts", { skip }, async (t) => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  const registry = await startRegistry(t);
  const gate = await startGate(t, registry.host);
  const base = await a.base("base", { disk: true });
  const branch = await a.branch("branch", base);
  await push(a, "base", `oci://${gate.host}/team/agent:base`);
  const before = gate.received();
  const { sentBytes } = await push(a, "branch", `oci://${gate.host}/team/agent:branch`);
  assert.equal(gate.received() - before, sentBytes);
  assert.ok(gate.seen.filter(({ method, url }) => method === "PUT" && url.includes("/blobs/")).length > 0);

  await pull(b, `oci://${gate.host}/team/agent:base`);
  const fetched = gate.seen.length;
  const got = await pull(b, `oci://${gate.host}/team/agent:branch`);
  assert.deepEqual(got.snapshots, [branch.manifest.id]);
  // its manifest, and its own memory, overlay and state
  const blobs = gate.seen.slice(fetched).filter(({ method, url }) => method === "GET" && url.includes("/blobs/"));
  assert.equal(blobs.length, 4);
  await same(a, b, "branch");
});

test("parts fetched by an interrupted pull, and parts in the cache, are not fetched again", { skip }, async (t) => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  await a.base("base", { disk: true });
  const registry = await startRegistry(t);
  await push(a, "base", `oci://${registry.host}/agent:v1`);
  const stop = new AbortController();
  const gate = await startGate(t, registry.host, {
    answer: ({ method, url }) => {
      const isThird = method === "GET" && gate.seen.filter((one) => one.url.includes("/blobs/")).length === 4 && url.includes("/blobs/");
      if (isThird && !stop.signal.aborted) stop.abort();
      return undefined;
    },
  });
  const before = await b.left();
  await assert.rejects(pull(b, `oci://${gate.host}/agent:v1`, {}, stop.signal));
  assert.deepEqual(await b.left(), before, "parts of it remain");
  await pull(b, `oci://${gate.host}/agent:v1`);
  await same(a, b, "base");
  await b.stores.snapshots.remove("base");
  const sent = gate.sent();
  await pull(b, `oci://${gate.host}/agent:v1`);
  assert.ok(gate.sent() - sent < 8000, `${gate.sent() - sent} bytes for manifests`);
  assert.deepEqual(await readdir(join(b.stores.home.cache, "packs", "downloads")), []);
});

test("a pack is uploaded to a web server and fetched in parts", async (t) => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  const base = await a.base("base", { disk: true });
  await a.branch("branch", base);
  const server = await startFileServer(t, Buffer.alloc(0));
  await push(a, "base", server.url);
  await pull(b, server.url);
  const other = await startFileServer(t, Buffer.alloc(0));
  const { sha256 } = await push(a, "branch", other.url);
  assert.equal(sha256, createHash("sha256").update(other.content).digest("hex"));
  await pull(b, other.url);
  assert.ok(other.sent() < other.content.length / 2 + 64 * 1024, `${other.sent()} of ${other.content.length}`);
  await same(a, b, "branch");
});

test("from a server without ranges, and without the local parts, the complete pack is fetched", async (t) => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  const base = await a.base("base");
  await a.branch("branch", base);
  const plain = await startFileServer(t, await a.pack("base"), { ranges: false });
  await pull(b, plain.url);
  const server = await startFileServer(t, await a.pack("branch", { without: new Set([base.manifest.id]) }));
  await pull(b, server.url);
  await same(a, b, "branch");
});

test("the digests and keys of an index are enforced", async (t) => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  await a.base("base");
  const { privateKey } = generateKeyPairSync("ed25519");
  const sign = signerOf(privateKey);
  const server = await startFileServer(t, Buffer.alloc(0));
  const { sha256 } = await push(a, "base", server.url, { sign });
  const wrong = "00".repeat(32);
  const before = await b.left();
  await assert.rejects(pull(b, server.url, { sha256: wrong }), { code: "DIGEST_MISMATCH" });
  await assert.rejects(pull(b, server.url, { manifestSha256: wrong }), { code: "DIGEST_MISMATCH" });
  await assert.rejects(pull(b, server.url, { key: wrong }), { code: "PACK_UNTRUSTED" });
  assert.deepEqual(await b.left(), before);
  const sent = server.sent();
  await pull(b, server.url, { sha256, key: sign(Buffer.alloc(0)).keyId });
  assert.equal(server.sent() - sent, server.content.length + 1);
  await b.stores.snapshots.remove("base");
  const again = server.sent();
  await pull(b, server.url, { sha256 });
  assert.equal(server.sent() - again, 1, "all but its size is in the cache");
  await same(a, b, "base");
  await new PackCache(b.stores.home).trim(0);
});

test("a pack that was changed on the server is refused, and nothing of it is kept", async (t) => {
  await using a = await FakeHome.make();
  await using b = await FakeHome.make();
  await a.base("base", { disk: true });
  const bytes = await a.pack("base");
  bytes[10_000] = (bytes[10_000] ?? 0) ^ 1;
  const server = await startFileServer(t, bytes);
  const before = await b.left();
  await assert.rejects(pull(b, server.url), { code: "DIGEST_MISMATCH" });
  assert.deepEqual(await b.left(), before);
  server.content = await a.pack("base");
  await pull(b, server.url);
  await same(a, b, "base");
});

test("an alias cannot be pushed to", async () => {
  await using a = await FakeHome.make();
  await a.base("base");
  await assert.rejects(push(a, "base", "acme/base@v1"), { code: "BAD_REQUEST", hint: /index/ });
});
