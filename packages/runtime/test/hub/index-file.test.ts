import assert from "node:assert/strict";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { findInIndex, readIndex } from "../../src/hub/index-file.ts";
import { startFront } from "../image/helpers/front.ts";

const SUM = "ab".repeat(32);

async function serve(t: TestContext, index: unknown): Promise<string> {
  const text = typeof index === "string" ? index : JSON.stringify(index);
  const front = await startFront(t, undefined, (_seen, res) => {
    res.end(text);
    return true;
  });
  return `http://${front.host}/hub/registry.json?token=s3cret`;
}

test("an alias names an address beside the index, elsewhere, or in a registry", async (t) => {
  const url = await serve(t, {
    schema_version: 1,
    updated_at: "whenever",
    packages: {
      "acme/numpy": {
        description: "warm numpy",
        versions: {
          latest: "v2",
          v2: { url: "packs/numpy-2.forkd", manifest_sha256: SUM, size_bytes: 7 },
          v1: { url: "https://else.example/numpy.forkd?sig=1", sha256: SUM, recipe_path: "x" },
          signed: { url: "oci://registry.example/acme/numpy:v1", key: "fingerprint" },
          pinned: { url: `oci://registry.example/acme/numpy@sha256:${SUM}` },
        },
      },
    },
  });
  const index = await readIndex(url, {});
  const latest = findInIndex(index, { name: "acme/numpy", version: "latest" });
  assert.equal(latest.version, "v2");
  assert.equal(latest.place.shown, url.replace(/registry\.json.*/, "packs/numpy-2.forkd"));
  assert.equal(latest.manifestSha256, SUM);
  const old = findInIndex(index, { name: "acme/numpy", version: "v1" });
  assert.equal(old.place.kind === "http" && old.place.url.href, "https://else.example/numpy.forkd?sig=1");
  assert.equal(findInIndex(index, { name: "acme/numpy", version: "signed" }).key, "fingerprint");
  assert.equal(findInIndex(index, { name: "acme/numpy", version: "pinned" }).place.kind, "oci");
});

test("a name that an index lacks, or an entry without a digest, is refused", async (t) => {
  const url = await serve(t, { schema_version: 1, packages: { "acme/x": { versions: { v1: { url: "x.forkd" }, loop: "loop" } } } });
  const index = await readIndex(url, {});
  const find = (name: string, version: string) => () => findInIndex(index, { name, version });
  assert.throws(find("acme/y", "latest"), { code: "NOT_FOUND" });
  assert.throws(find("constructor", "latest"), { code: "NOT_FOUND" });
  assert.throws(find("acme/x", "latest"), { code: "NOT_FOUND", hint: /v1, loop/ });
  assert.throws(find("acme/x", "loop"), { code: "NOT_FOUND" });
  assert.throws(find("acme/x", "v1"), { code: "DIGEST_MISMATCH", message: /neither its sum nor the key/ });
});

test("an index of another version, and a missing one, are refused with an error without its query", async (t) => {
  await assert.rejects(readIndex(undefined, {}), { code: "HUB_MISSING", hint: /FORKD_HUB_URL/ });
  for (const index of [
    { schema_version: 2, packages: {} },
    "<html>",
    { schema_version: 1, packages: { a: { versions: { v1: { url: "" } } } } },
  ]) {
    await assert.rejects(
      readIndex(await serve(t, index), {}),
      (error: Error) => "code" in error && error.code === "HUB_FAILED" && !error.message.includes("s3cret"),
    );
  }
});

test("a remote index cannot name a server of this machine", () => {
  const at = (hub: string, url: string) => () =>
    findInIndex(
      { schema_version: 1, packages: { "acme/x": { versions: { v1: { url, sha256: SUM } } } }, url: new URL(hub) },
      { name: "acme/x", version: "v1" },
    );
  for (const url of ["http://127.0.0.1:80/x", "https://localhost/x", "oci://127.0.0.1:5000/x/y"]) {
    assert.throws(at("https://hub.example/r.json", url), { code: "HUB_FAILED", message: /this machine/ });
    assert.equal(at("http://127.0.0.1:81/r.json", url)().version, "v1");
  }
});

test("a remote index is read over TLS only", async () => {
  await assert.rejects(readIndex("http://hub.example/registry.json", {}), { code: "HUB_FAILED", message: /not encrypted/ });
});
