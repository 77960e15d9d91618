import assert from "node:assert/strict";
import { test } from "node:test";
import { newId, newNodeCode } from "../../src/util/id.ts";

test("an id begins with the code of its node, and keeps its length", () => {
  const code = newNodeCode();
  assert.match(code, /^[a-z2-7]{4}$/);
  const ids = Array.from({ length: 1000 }, () => newId("sb", code));
  for (const id of ids) assert.match(id, new RegExp(`^sb-${code}[a-z2-7]{12}$`));
  assert.equal(new Set(ids).size, ids.length);
  assert.match(newId("sb"), /^sb-[a-z2-7]{16}$/);
});
