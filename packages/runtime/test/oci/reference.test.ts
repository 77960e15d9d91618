import assert from "node:assert/strict";
import { test } from "node:test";
import { isLoopback, parseReference } from "../../src/oci/reference.ts";

const DIGEST = `sha256:${"a".repeat(64)}`;

const GOOD: [string, string, string, string, string | undefined][] = [
  ["debian", "registry-1.docker.io", "library/debian", "latest", undefined],
  ["debian:12", "registry-1.docker.io", "library/debian", "12", undefined],
  ["user/app:v1", "registry-1.docker.io", "user/app", "v1", undefined],
  ["docker.io/debian", "registry-1.docker.io", "library/debian", "latest", undefined],
  ["localhost/app", "localhost", "app", "latest", undefined],
  ["localhost:5000/a/b/c:t", "localhost:5000", "a/b/c", "t", undefined],
  ["registry.example:443/x", "registry.example:443", "x", "latest", undefined],
  ["[::1]:5000/x", "[::1]:5000", "x", "latest", undefined],
  [`reg.example/x@${DIGEST}`, "reg.example", "x", "latest", DIGEST],
  [`reg.example/x:1@${DIGEST}`, "reg.example", "x", "1", DIGEST],
];
for (const [text, host, repository, tag, digest] of GOOD) {
  test(`reads the reference ${text}`, () => {
    const ref = parseReference(text);
    assert.deepEqual([ref.host, ref.repository, ref.tag, ref.digest], [host, repository, tag, digest]);
  });
}

const BAD = [
  "",
  "UPPER",
  "a//b",
  "x:",
  "x:bad tag",
  "x@sha256:12",
  "x@md5:aa",
  "http://x/y",
  "../x",
  "reg.example/../../v2/x",
  "reg.example/x?y",
  "ex ample.com/x",
  "x@y@z",
  "-x",
];
for (const text of BAD) {
  test(`refuses the reference ${JSON.stringify(text)}`, () => {
    assert.throws(() => parseReference(text), { code: "BAD_REQUEST" });
  });
}

test("only this machine is loopback", () => {
  for (const host of ["localhost", "localhost:5000", "127.0.0.1:1", "127.9.9.9", "[::1]:80"]) assert.equal(isLoopback(host), true, host);
  for (const host of ["127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]:80", "0.0.0.0"])
    assert.equal(isLoopback(host), false, host);
});
