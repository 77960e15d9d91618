import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { HttpClient } from "../../src/hub/http-client.ts";
import { openHttpPack, sizeOf, wholeOf } from "../../src/hub/http-pull.ts";
import { bufferBlob } from "../../src/hub/local-blob.ts";
import { digestOf } from "../../src/util/digest.ts";
import { downloadBlob } from "../../src/oci/blob-download.ts";
import { tarOf } from "../image/helpers/tar.ts";
import { tempDir } from "../image/helpers/temp-home.ts";
import { startFileServer } from "./helpers/file-server.ts";

const MIB = 1024 ** 2;
const LIMITS = { configMediaType: "", maxManifestBytes: MIB, maxSignaturesBytes: 10_000 };
const BLOBS = [randomBytes(3 * MIB + 7), randomBytes(600), randomBytes(MIB)];

type Ref = { digest: string; size: number };

/** A file with the layout of a pack: the list of its blobs first */
function packOf(opts: { signatures?: string; filler?: number; leftOut?: number } = {}): { file: Buffer; manifest: string; refs: Ref[] } {
  const refs = BLOBS.map((data) => ({ digest: digestOf(data), size: data.length }));
  const manifest = JSON.stringify({ refs, filler: "x".repeat(opts.filler ?? 0) });
  const file = tarOf([
    member("manifest", Buffer.from(manifest)),
    ...(opts.signatures === undefined ? [] : [member("signatures", Buffer.from(opts.signatures))]),
    ...BLOBS.slice(opts.leftOut ?? 0).map((content) => member("blobs", content)),
  ]);
  return { file, manifest, refs };
}

function member(kind: string, content: Buffer): { path: string; content: Buffer } {
  return { path: `${kind}/sha256/${digestOf(content).slice(7)}`, content };
}

const refsIn = (manifest: Buffer): Ref[] => (JSON.parse(manifest.toString()) as { refs: Ref[] }).refs;

async function cacheDir(t: TestContext): Promise<{ cache: string; out: string }> {
  const dir = await tempDir(t);
  await mkdir(join(dir, "out"));
  return { cache: join(dir, "cache"), out: join(dir, "out") };
}

for (const [what, opts] of [
  ["small", {}],
  ["with signatures", { signatures: "[1]" }],
  ["with a long manifest", { signatures: "[2]", filler: 200_000 }],
] as const) {
  test(`single blobs come out of a pack, ${what}`, async (t) => {
    const { file, manifest, refs } = packOf(opts);
    const server = await startFileServer(t, file);
    const pack = await openHttpPack(new HttpClient(new URL(`${server.url}?sig=s3cret`), {}), LIMITS, refsIn);
    assert.equal(pack?.manifest.toString(), manifest);
    assert.equal(pack?.signatures?.toString(), "signatures" in opts ? opts.signatures : undefined);
    const before = server.sent();
    const { cache, out } = await cacheDir(t);
    const last = refs[2] as Ref;
    await downloadBlob(cache, pack.source, last, join(out, "last"), {});
    assert.equal(digestOf(await readFile(join(out, "last"))), last.digest);
    assert.equal(server.sent() - before, last.size);
    assert.ok(server.seen.every(({ url }) => url.endsWith("?sig=s3cret")));
  });
}

test("after dropped connections, and in another pull, no byte is fetched twice", async (t) => {
  const { file, refs } = packOf();
  // only bytes in flight when a connection broke are lost
  const server = await startFileServer(t, file, { dropAfter: ({ start }) => (start > 0 ? 700_000 : undefined) });
  const { cache, out } = await cacheDir(t);
  const client = new HttpClient(new URL(server.url), {});
  const pack = await openHttpPack(client, LIMITS, refsIn);
  assert.ok(pack);
  const before = server.sent();
  for (const ref of refs) await downloadBlob(cache, pack.source, ref, join(out, ref.digest), {});
  const total = refs.reduce((sum, { size }) => sum + size, 0);
  assert.ok(server.sent() - before >= total);
  assert.ok(server.sent() - before < total + 6 * 200_000, `${server.sent() - before} of ${total}`);
  for (const ref of refs) assert.equal(digestOf(await readFile(join(out, ref.digest))), ref.digest);
  const after = server.sent();
  for (const ref of refs) await downloadBlob(cache, pack.source, ref, join(out, `${ref.digest}-2`), {});
  assert.equal(server.sent(), after);
});

test("a file with a known digest is resumed as a whole", async (t) => {
  const file = randomBytes(2 * MIB);
  const server = await startFileServer(t, file, { dropAfter: ({ nth }) => (nth === 2 ? MIB : undefined) });
  const client = new HttpClient(new URL(server.url), {});
  const { cache, out } = await cacheDir(t);
  const whole = { digest: digestOf(file), size: await sizeOf(client) };
  await downloadBlob(cache, wholeOf(client), whole, join(out, "file"), {});
  assert.match(server.seen[2]?.range ?? "", /^bytes=[1-9]\d{4,}-2097151$/);
  await assert.rejects(downloadBlob(cache, wholeOf(client), { ...whole, digest: `sha256:${"0".repeat(64)}` }, join(out, "no"), {}), {
    code: "DIGEST_MISMATCH",
  });
});

test("a server without ranges, a missing file, and a file that is not a pack have different errors", async (t) => {
  const open = async (url: string) => openHttpPack(new HttpClient(new URL(url), {}), LIMITS, refsIn);
  const plain = await startFileServer(t, packOf().file, { ranges: false });
  assert.equal(await open(plain.url), undefined);
  assert.equal(await open((await startFileServer(t, packOf({ leftOut: 1 }).file)).url), undefined);
  const other = await startFileServer(t, randomBytes(5000));
  await assert.rejects(open(other.url), { code: "PACK_INVALID" });
  await assert.rejects(open((await startFileServer(t, tarOf([member("manifest", randomBytes(2 * MIB))]))).url), {
    code: "PACK_INVALID",
    message: /more than/,
  });
  const locked = await startFileServer(t, packOf().file, { login: "nobody" });
  await assert.rejects(open(`${locked.url}?sig=s3cret`), (error: Error & { code?: string }) => {
    assert.equal(error.code, "HUB_FAILED");
    assert.doesNotMatch(error.message, /s3cret/);
    return true;
  });
});

test("a file is uploaded with its length, and with credentials only after a challenge", async (t) => {
  const data = randomBytes(MIB);
  const blob = bufferBlob(data);
  const body = { bytes: data.length, open: () => blob.open(0, data.length) };
  const login = { username: "alice", password: "pass" };
  const free = await startFileServer(t, Buffer.alloc(0));
  await new HttpClient(new URL(`${free.url}?X-Signature=abc`), login).put(body);
  assert.deepEqual(free.content, data);
  const put = free.seen.find(({ method }) => method === "PUT");
  assert.deepEqual([put?.length, put?.authorization, put?.url.split("?")[1]], [String(data.length), undefined, "X-Signature=abc"]);
  const locked = await startFileServer(t, Buffer.alloc(0), { login: `Basic ${Buffer.from("alice:pass").toString("base64")}` });
  await assert.rejects(new HttpClient(new URL(locked.url), {}).put(body), { code: "HUB_FAILED", hint: /FORKD_REGISTRY_USER/ });
  await new HttpClient(new URL(locked.url), login).put(body);
  assert.deepEqual(locked.content, data);
});

test("plain http is allowed only for this machine", () => {
  assert.throws(() => new HttpClient(new URL("http://store.example/x?sig=s3cret"), {}), { code: "HUB_FAILED", message: /not encrypted/ });
});
