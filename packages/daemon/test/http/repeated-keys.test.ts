// Which JSON texts say the same thing twice.

import assert from "node:assert/strict";
import { test } from "node:test";
import { hasRepeatedKeys } from "../../src/http/repeated-keys.ts";

function isRepeated(text: string): boolean {
  return hasRepeatedKeys(text, JSON.parse(text));
}

test("a key that is there twice is found, however it is written", () => {
  for (const text of [
    '{"a":1,"a":1}',
    '{"a":1, "\\u0061" : 2}',
    '[{"b":{"a":1,\n"a"\t:2}}]',
    '{"\\"":1,"\\"":2}',
    '{"\\\\":1,"\\\\":2}',
    '{"":1,"":2}',
  ])
    assert.equal(isRepeated(text), true, text);
});

test("the same key in other objects, and texts that look like keys, are none", () => {
  for (const text of [
    '{"a":{"a":1},"b":[{"a":1},{"a":2}]}',
    '{"a":"\\"a\\":1"}',
    '{"a":"a:","b":":"}',
    '["a","a"]',
    '"a"',
    "1",
    "{}",
    '{"a\\\\":"\\\\","b":1}',
  ])
    assert.equal(isRepeated(text), false, text);
});

test("depth does not matter", () => {
  const depth = 100_000;
  assert.equal(isRepeated(`${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`), false);
});
