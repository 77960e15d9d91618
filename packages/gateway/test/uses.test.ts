import assert from "node:assert/strict";
import { test } from "node:test";
import { sumOf, Uses } from "../src/nodes/uses.ts";

test("a node that left the cluster no longer counts, one that is silent does", () => {
  const uses = new Uses();
  const [silent, left] = [{}, {}];
  for (const node of [silent, left]) uses.note("ann", node, { use: { ...sumOf([]), sandboxes: 2 }, asked: 1 });
  assert.equal(uses.total("ann")?.sandboxes, 4);
  uses.keep([silent]);
  assert.equal(uses.total("ann")?.sandboxes, 2);
  assert.equal(uses.elsewhere("ann", silent)?.sandboxes, 0);
});
