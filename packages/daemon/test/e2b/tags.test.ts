// Tags of templates: invalid requests are refused before a snapshot is copied or removed.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { fakeManager } from "../helpers/fake-manager.ts";
import { serve, type Fixture } from "../helpers/serve.ts";
import type { SnapshotInfo } from "../../src/api/snapshot.ts";

async function fixture(t: TestContext): Promise<Pick<Fixture, "ask"> & { done: string[] }> {
  const done: string[] = [];
  const base = { id: "sn-base", tag: "base", status: "ready", metadata: {} } as SnapshotInfo;
  const manager = fakeManager({
    snapshots: {
      get: async () => base,
      remove: async (tag) => {
        done.push(`remove ${tag}`);
        return {} as never;
      },
      compact: async (from, to) => {
        done.push(`copy ${from} ${to}`);
        return base;
      },
      update: async () => base,
    },
  });
  return { ask: (await serve(t, { manager })).ask, done };
}

test("tagging a template makes a copy under its name", async (t) => {
  const { ask, done } = await fixture(t);
  const { status, json } = await ask("/templates/tags", { body: { target: "base", tags: ["v1", "stable-2"] } });
  assert.deepEqual([status, json()["tags"]], [201, ["v1", "stable-2"]]);
  assert.deepEqual(done, ["remove base.v1", "copy base base.v1", "remove base.stable-2", "copy base base.stable-2"]);
});

test("invalid tags, and tags with a name, are refused", async (t) => {
  const { ask, done } = await fixture(t);
  for (const wrong of [":x", "base:", "base:x", "", "a/b", "a b"]) {
    const assigned = await ask("/templates/tags", { body: { target: "base", tags: ["good", wrong] } });
    assert.deepEqual([assigned.status, assigned.json()["code"]], [400, 400], wrong);
    const body = JSON.stringify({ name: "base", tags: [wrong] });
    // node's client sends no length for the body of a DELETE
    const headers = { "content-type": "application/json", "content-length": String(body.length) };
    const removed = await ask("/templates/tags", { method: "DELETE", headers, body });
    assert.equal(removed.status, 400, wrong);
    const built = await ask("/v3/templates", { body: { name: "base", tags: [wrong] } });
    assert.equal(built.status, 400, wrong);
  }
  for (const target of [":x", "base:", "base:a:b"]) {
    assert.equal((await ask("/templates/tags", { body: { target, tags: ["v1"] } })).status, 400, target);
    assert.equal((await ask("/v3/templates", { body: { name: target } })).status, 400, target);
  }
  assert.deepEqual(done, []);
});
