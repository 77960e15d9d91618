import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePlace } from "../../src/hub/place.ts";

test("addresses keep their query, and are shown without it", () => {
  const place = parsePlace("https://store.example/a/b.forkd?X-Signature=secret#part");
  assert.equal(place.kind, "http");
  assert.equal(place.kind === "http" && place.url.href, "https://store.example/a/b.forkd?X-Signature=secret");
  assert.equal(place.shown, "https://store.example/a/b.forkd");
});

test("names in registries have a host", () => {
  const place = parsePlace("oci://127.0.0.1:5000/team/agent:v2");
  assert.equal(place.kind === "oci" && place.reference.repository, "team/agent");
  assert.equal(place.shown, "oci://127.0.0.1:5000/team/agent:v2");
  assert.throws(() => parsePlace("oci://agent:v2"), { code: "BAD_REQUEST" });
  assert.throws(() => parsePlace("oci://team/agent"), { code: "BAD_REQUEST" });
});

test("an alias without a version is its latest one", () => {
  assert.deepEqual(parsePlace("acme/numpy"), { kind: "alias", name: "acme/numpy", version: "latest", shown: "acme/numpy@latest" });
  assert.deepEqual(parsePlace("acme/numpy@v1.2"), { kind: "alias", name: "acme/numpy", version: "v1.2", shown: "acme/numpy@v1.2" });
});

test("the error of a refused location does not repeat its secrets", () => {
  for (const text of ["https://alice:s3cret@store.example/x", "ftp://alice:s3cret@x/y?s3cret", "a/b/c?s3cret", ""]) {
    assert.throws(
      () => parsePlace(text),
      (error: Error) => !error.message.includes("s3cret") && "code" in error && error.code === "BAD_REQUEST",
      text,
    );
  }
});
