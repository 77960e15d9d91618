// Signed URLs of files.

import assert from "node:assert/strict";
import { test } from "node:test";
import { isSignedBy, signatureOf, signedIn } from "../../src/e2b/signature.ts";

const TOKEN = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";
const SIGNED = { path: "hello.txt", operation: "read", user: "user", expiration: null } as const;
const SIGNATURE = "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E";

test("a signature is equal to that of E2B's SDKs", () => {
  assert.equal(signatureOf(SIGNED, TOKEN), SIGNATURE);
  assert.ok(isSignedBy(TOKEN, SIGNED, SIGNATURE));
});

test("it is valid only for this path, operation, user, time and token", () => {
  for (const other of [{ path: "hello.tx" }, { operation: "write" as const }, { user: "" }, { expiration: "99" }])
    assert.ok(!isSignedBy(TOKEN, { ...SIGNED, ...other }, SIGNATURE), JSON.stringify(other));
  assert.ok(!isSignedBy(`${TOKEN}x`, SIGNED, SIGNATURE));
  assert.ok(!isSignedBy(TOKEN, SIGNED, SIGNATURE.slice(0, -1)));
});

test("the signed values are read from the query", () => {
  const query = new URLSearchParams({ path: "hello.txt", username: "user", signature: "v1_a b" });
  assert.deepEqual(signedIn(query, "GET"), { signed: SIGNED, signature: "v1_a+b" });
  const upload = signedIn(new URLSearchParams("signature=v1_x&signature_expiration=5"), "POST");
  assert.deepEqual(upload?.signed, { path: "", operation: "write", user: "", expiration: "5" });
  assert.equal(signedIn(new URLSearchParams("path=a"), "GET"), null);
});
