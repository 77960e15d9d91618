// Filters and pages of lists.

import assert from "node:assert/strict";
import { test } from "node:test";
import { listSandboxes, metadataOf, pageOf } from "../../src/e2b/control/list.ts";
import { fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import type { ControlWork } from "../../src/e2b/work.ts";

test("the SDKs escape metadata three times", () => {
  const query = new URLSearchParams("metadata=a%3Db%252520c%252526d");
  assert.deepEqual(metadataOf(query.get("metadata")), ["a=b c&d"]);
  assert.deepEqual(metadataOf("a%3D1%26b%3D2"), ["a=1", "b=2"]);
  assert.deepEqual(metadataOf("a=1&b=100%"), ["a=1", "b=100%"]);
  assert.equal(metadataOf(null), undefined);
});

test("pages cover everything once, in both directions", () => {
  const all = ["a", "b", "c", "d", "e"];
  for (const isAscending of [true, false]) {
    const sorted = isAscending ? all : all.toReversed();
    const seen: string[] = [];
    const query = new URLSearchParams({ limit: "2" });
    for (;;) {
      const { items, nextToken } = pageOf(sorted, (item) => item, query, isAscending);
      seen.push(...items);
      if (nextToken === null) break;
      query.set("nextToken", nextToken);
    }
    assert.deepEqual(seen, sorted);
  }
});

/** Sandboxes created at these milliseconds, as listed by a query */
function listed(madeAtMs: Record<string, number>, query: Record<string, string>): { sandboxID: string; startedAt: string }[] {
  const items = Object.entries(madeAtMs).map(([id, at]) => ({
    ...sandboxInfo(id),
    metadata: {},
    expires_at_unix: null,
    created_at_unix: Math.floor(at / 1000),
    created_at_unix_ms: at,
  }));
  const manager = fakeManager({ sandboxes: { list: () => ({ items, nextCursor: null }) } });
  const call = { path: "/v2/sandboxes", query: new URLSearchParams(query) };
  return listSandboxes({ call, services: { manager } } as unknown as ControlWork).body as ReturnType<typeof listed>;
}

test("sandboxes of the same second are listed in the order of creation", () => {
  const made = { "sb-c": 1_700_000_000_001, "sb-a": 1_700_000_000_003, "sb-b": 1_700_000_000_002 };
  const ids = (order: string): string[] => listed(made, { order }).map(({ sandboxID: id }) => id);
  assert.deepEqual(ids("asc"), ["sb-c", "sb-b", "sb-a"]);
  assert.deepEqual(ids("desc"), ["sb-a", "sb-b", "sb-c"]);
  assert.equal(listed(made, { order: "asc" })[0]?.startedAt, "2023-11-14T22:13:20.001Z");
});

test("startedAfter includes that moment", () => {
  const made = { "sb-a": 1_700_000_000_001, "sb-b": 1_700_000_000_002, "sb-c": 1_700_000_000_003 };
  const after = (ms: number): string[] => listed(made, { startedAfter: new Date(ms).toISOString() }).map(({ sandboxID: id }) => id);
  assert.deepEqual(after(1_700_000_000_002), ["sb-c", "sb-b"]);
  assert.deepEqual(after(1_700_000_000_004), []);
});
