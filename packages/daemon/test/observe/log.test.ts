// The log's format, and the values that it must not contain.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createLog } from "../../src/observe/log.ts";

test("lines are JSON with time and level, and secrets are redacted", () => {
  const lines: string[] = [];
  const log = createLog("info", { write: (line: string) => void lines.push(line) });
  log.debug("not shown");
  log.info({ token: "secret-1", headers: { authorization: "secret-2" }, registry: { login: { password: "secret-3" } }, id: "x" }, "hello");
  assert.equal(lines.length, 1);
  const line = JSON.parse(lines[0] ?? "") as Record<string, unknown>;
  assert.equal(line["level"], "info");
  assert.equal(line["msg"], "hello");
  assert.equal(line["id"], "x");
  assert.match(String(line["time"]), /^\d{4}-.*Z$/);
  assert.doesNotMatch(lines[0] ?? "", /secret/);
});
