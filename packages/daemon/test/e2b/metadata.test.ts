// File metadata in request headers.

import assert from "node:assert/strict";
import { test } from "node:test";
import { metadataIn } from "../../src/e2b/envd/metadata.ts";

test("metadata is read from its headers, and from no others", () => {
  const others = { "content-type": ["x"], "x-metadata-": ["nobody's"], "x-metadatum": ["2"] };
  assert.deepEqual(metadataIn({ ...others, "x-metadata-a": ["1", "later"], "x-metadata-b-c": [""] }), { a: "1", "b-c": "" });
  assert.deepEqual(metadataIn({}), {});
});

test("metadata has the limits of E2B", () => {
  const refused = { code: "BAD_REQUEST" };
  const key = (length: number): string => `x-metadata-${"k".repeat(length)}`;
  assert.ok(metadataIn({ [key(246)]: ["v"] }));
  assert.throws(() => metadataIn({ [key(247)]: ["v"] }), refused);
  assert.ok(metadataIn({ "x-metadata-a": ["v".repeat(4096 - "user.e2b.a".length)] }));
  assert.throws(() => metadataIn({ "x-metadata-a": ["v".repeat(4097 - "user.e2b.a".length)] }), refused);
  for (const value of ["ü", "tab\there"]) assert.throws(() => metadataIn({ "x-metadata-a": [value] }), refused);
});
