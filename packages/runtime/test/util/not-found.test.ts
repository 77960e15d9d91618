// NOT_FOUND errors and their suggestions.

import assert from "node:assert/strict";
import { test } from "node:test";
import { nearestOf, notFound } from "../../src/util/not-found.ts";

test("the error names the list, and the nearest name where there is one", () => {
  const error = notFound("snapshot", "pyhton", ["node", "python"]);
  assert.deepEqual(
    [error.code, error.message, error.hint, error.details],
    [
      "NOT_FOUND",
      "There is no snapshot pyhton.",
      "Did you mean python? `GET /v1/snapshots` lists what there is.",
      { kind: "snapshot", nearest: "python" },
    ],
  );
  const other = notFound("image", "a b\n", ["node"]);
  assert.deepEqual(
    [other.message, other.hint, other.details],
    ['There is no image "a b\\n".', "`GET /v1/images` lists what there is.", { kind: "image" }],
  );
});

test("a name is similar by few typos, by its case, or by its prefix", () => {
  const known = ["t", "base", "Agent-1", "python-numpy", "python"];
  for (const [name, nearest] of [
    ["bsae", "base"],
    ["bas", "base"],
    ["agent-1", "Agent-1"],
    ["agent_2", undefined],
    ["pyton", "python"],
    ["python-num", "python-numpy"],
    ["pythonn-nunpy", "python-numpy"],
    ["pyt", "python"],
    ["p", undefined],
    ["x", undefined],
    ["cafe", undefined],
    ["nothing", undefined],
    ["", undefined],
  ] as const)
    assert.equal(nearestOf(name, known), nearest, name);
});

test("the error repeats only valid names", () => {
  assert.equal(nearestOf("evil", ["evil\u001b[2J", "e vil"]), undefined);
});

test("a suggestion among many names is fast", () => {
  const known = Array.from({ length: 100_000 }, (_, i) => `sandbox-with-a-long-name-${i}`);
  assert.ok(nearestOf("x".repeat(64), known) === undefined);
});
