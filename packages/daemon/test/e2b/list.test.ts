// Filters and pages of lists.

import assert from "node:assert/strict";
import { test } from "node:test";
import { metadataOf, pageOf } from "../../src/e2b/control/list.ts";

test("metadata is escaped three times by the SDKs", () => {
  const query = new URLSearchParams("metadata=a%3Db%252520c%252526d");
  assert.deepEqual(metadataOf(query.get("metadata")), ["a=b c&d"]);
  assert.deepEqual(metadataOf("a%3D1%26b%3D2"), ["a=1", "b=2"]);
  assert.deepEqual(metadataOf("a=1&b=100%"), ["a=1", "b=100%"]);
  assert.equal(metadataOf(null), undefined);
});

test("pages lead through everything once, in both directions", () => {
  const all = ["a", "b", "c", "d", "e"];
  for (const isAscending of [true, false]) {
    const sorted = isAscending ? all : all.toReversed();
    const seen: string[] = [];
    const query = new URLSearchParams({ limit: "2" });
    for (;;) {
      const { items, nextToken } = pageOf(sorted, (item) => item, query, isAscending);
      seen.push(...items);
      if (nextToken === null) break;
      query.set("nextToken", nextToken);
    }
    assert.deepEqual(seen, sorted);
  }
});
