// One member of a JSON text is changed, and no other byte.

import assert from "node:assert/strict";
import { test } from "node:test";
import { parseJson, putMember } from "../src/mcp/json-edit.ts";

test("a new member is appended in the style of the others", () => {
  assert.equal(putMember('{\n\t"a": 1\n}\n', [], "b", { c: [] }), '{\n\t"a": 1,\n\t"b": {\n\t\t"c": []\n\t}\n}\n');
  assert.equal(putMember('{"a":1}', [], "b", 2), '{"a":1, "b": 2}');
  assert.equal(putMember("{}\n", [], "b", 2), '{\n  "b": 2\n}\n');
  assert.equal(putMember(" { } ", [], "b", 2), ' {\n   "b": 2\n } ');
});

test("an existing member gets the new value in place", () => {
  const text = '{ "a": {"b": "}\\"{", "c": [1, {"b": 0}]}, "b": 1e400, "z": null }';
  assert.equal(putMember(text, [], "b", true), '{ "a": {"b": "}\\"{", "c": [1, {"b": 0}]}, "b": true, "z": null }');
  assert.equal(putMember(text, [], "a", 1), '{ "a": 1, "b": 1e400, "z": null }');
});

test("names are found in every escaped form, and only at their path", () => {
  const text = '{"x": "mcpServers", "y": {"mcpServers": 1}, "mcp\\u0053ervers": {"forkd": 2}}';
  assert.equal(putMember(text, ["mcpServers"], "forkd", 3), text.replace("2}", "3}"));
  assert.throws(() => putMember(text, ["z"], "forkd", 3), TypeError);
});

test("comments and trailing commas in JSON are kept", () => {
  const text = '// mine\n{\n  "a": { "b": 1 }, // one\n  /* none */\n}\n';
  const after = putMember(text, [], "c", 2);
  assert.equal(after, '// mine\n{\n  "a": { "b": 1 },\n  "c": 2, // one\n  /* none */\n}\n');
  assert.deepEqual(parseJson(after), { a: { b: 1 }, c: 2 });
  assert.equal(putMember("{\n  // empty\n}", [], "c", 2), '{\n  // empty\n  "c": 2\n}');
});

test("an error names its line", () => {
  assert.throws(() => parseJson('{\n  "a" 1\n}'), { name: "SyntaxError", message: "ColonExpected in line 2" });
});

test("for random texts, the new value is set and the rest is unchanged", () => {
  const values = [{}, { a: [] }, { a: { b: { c: '\\"' } }, d: [[], {}, "]"] }, { "": null, é: "{", n: -1.5e-7, t: [true, false] }];
  for (const value of values)
    for (const indent of [undefined, 2, "\t"])
      for (const key of ["a", "new", ""]) {
        const after = putMember(JSON.stringify(value, undefined, indent), [], key, { put: [1] });
        assert.deepEqual(JSON.parse(after), { ...value, [key]: { put: [1] } });
      }
});
