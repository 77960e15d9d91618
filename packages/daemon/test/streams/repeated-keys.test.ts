// Detection of duplicate keys in JSON texts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { hasRepeatedKeys } from "../../src/streams/repeated-keys.ts";

function isRepeated(text: string): boolean {
  return hasRepeatedKeys(text, JSON.parse(text));
}

test("a repeated key is found in any notation", () => {
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

test("equal keys in different objects, and texts that look like keys, are not repetitions", () => {
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

test("depth has no effect", () => {
  const depth = 100_000;
  assert.equal(isRepeated(`${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`), false);
});
