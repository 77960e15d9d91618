// One member of a JSON text is changed, and no other byte.

import assert from "node:assert/strict";
import { test } from "node:test";
import { memberOf, putMember } from "../src/json-edit.ts";

test("a new member comes last, as the others are written", () => {
  assert.equal(putMember('{\n\t"a": 1\n}\n', 0, "b", { c: [] }), '{\n\t"a": 1,\n\t"b": {\n\t\t"c": []\n\t}\n}\n');
  assert.equal(putMember('{"a":1}', 0, "b", 2), '{"a":1, "b": 2}');
  assert.equal(putMember("{}\n", 0, "b", 2), '{\n  "b": 2\n}\n');
  assert.equal(putMember(" { } ", 0, "b", 2), ' {\n   "b": 2\n } ');
});

test("a member that is there gets another value in its place", () => {
  const text = '{ "a": {"b": "}\\"{", "c": [1, {"b": 0}]}, "b": 1e400, "z": null }';
  assert.equal(putMember(text, 0, "b", true), '{ "a": {"b": "}\\"{", "c": [1, {"b": 0}]}, "b": true, "z": null }');
  assert.equal(putMember(text, 0, "a", 1), '{ "a": 1, "b": 1e400, "z": null }');
});

test("names are found whatever their spelling, and only where they are", () => {
  const text = '{"x": "mcpServers", "y": {"mcpServers": 1}, "mcp\\u0053ervers": {"forkd": 2}}';
  const found = memberOf(text, 0, "mcpServers");
  assert.equal(text.slice(found?.start, found?.end), '{"forkd": 2}');
  assert.equal(memberOf(text, 0, "forkd"), undefined);
});

test("whatever the text, the value is what was put and the rest is what was there", () => {
  const values = [{}, { a: [] }, { a: { b: { c: '\\"' } }, d: [[], {}, "]"] }, { "": null, é: "{", n: -1.5e-7, t: [true, false] }];
  for (const value of values)
    for (const indent of [undefined, 2, "\t"])
      for (const key of ["a", "new", ""]) {
        const after = putMember(JSON.stringify(value, undefined, indent), 0, key, { put: [1] });
        assert.deepEqual(JSON.parse(after), { ...value, [key]: { put: [1] } });
      }
});
