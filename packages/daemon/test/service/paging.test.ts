// Pages of lists, and filters by metadata.

import assert from "node:assert/strict";
import { test } from "node:test";
import { hasMetadata, pageOf } from "../../src/service/paging.ts";

const same = (item: string): string => item;

test("pages together are the whole list, with insertions and removals in between", () => {
  let items = ["a", "c", "e", "g", "i"];
  const first = pageOf(items, same, { limit: 2 });
  assert.deepEqual(first.items, ["a", "c"]);
  assert.ok(first.nextCursor);
  // "b" and "f" are new, and "c", the last item of the first page, was removed
  items = ["a", "b", "e", "f", "g", "i"];
  const second = pageOf(items, same, { limit: 3, cursor: first.nextCursor });
  assert.deepEqual(second.items, ["e", "f", "g"]);
  assert.ok(second.nextCursor);
  const third = pageOf(items, same, { limit: 3, cursor: second.nextCursor });
  assert.deepEqual(third, { items: ["i"], nextCursor: null });
});

test("without a limit there is one page, and a last page has no next", () => {
  assert.deepEqual(pageOf(["a", "b"], same, {}), { items: ["a", "b"], nextCursor: null });
  assert.deepEqual(pageOf(["a", "b"], same, { limit: 2 }), { items: ["a", "b"], nextCursor: null });
});

test("an invalid cursor is refused", () => {
  assert.throws(() => pageOf(["a"], same, { cursor: "%%%" }), { code: "BAD_REQUEST" });
});

test("a filter requires every pair, and a value may contain an equals sign", () => {
  assert.ok(hasMetadata({ a: "1", b: "x=y" }, ["a=1", "b=x=y"]));
  assert.ok(!hasMetadata({ a: "1" }, ["a=2"]));
  assert.ok(!hasMetadata({ a: "1" }, ["a=1", "b=2"]));
  assert.ok(hasMetadata({}, undefined));
});
