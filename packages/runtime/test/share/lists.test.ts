// Cached folder listings: per owner and path, bounded in all.

import assert from "node:assert/strict";
import { test } from "node:test";
import { dropLists, keepList, takeList } from "../../src/share/lists.ts";

const names = (count: number): Buffer[] => Array<Buffer>(count).fill(Buffer.from("name"));

test("a list belongs to its owner, and is returned once", (t) => {
  const [one, other] = [{}, {}];
  t.after(() => [one, other].forEach(dropLists));
  keepList(one, "a", names(1));
  keepList(other, "a", names(2));
  keepList(other, "b", names(3));
  assert.equal(takeList(one, "b"), undefined);
  assert.equal(takeList(one, "a")?.length, 1);
  assert.equal(takeList(one, "a"), undefined);
  dropLists(one);
  assert.equal(takeList(other, "b")?.length, 3);
  dropLists(other);
  assert.equal(takeList(other, "a"), undefined);
});

test("the oldest lists are dropped when there are too many names or lists", (t) => {
  const owner = {};
  t.after(() => dropLists(owner));
  for (const path of ["first", "second", "third"]) keepList(owner, path, names(150_000));
  assert.deepEqual(
    ["first", "second", "third"].map((path) => takeList(owner, path) !== undefined),
    [false, true, true],
  );
  for (let n = 0; n < 5000; n++) keepList(owner, `list-${n}`, []);
  assert.equal(takeList(owner, "list-0"), undefined);
  assert.deepEqual(takeList(owner, "list-4999"), []);
});

test("unused lists expire", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const owner = {};
  keepList(owner, "a", names(1));
  t.mock.timers.tick(9000);
  assert.ok(takeList(owner, "a"));
  keepList(owner, "a", names(1));
  t.mock.timers.tick(11_000);
  assert.equal(takeList(owner, "a"), undefined);
});
