// Requests with an Idempotency-Key are executed once.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { hashRequest } from "../../src/rest/idempotency.ts";
import { Db } from "../../src/store/db.ts";
import { IdempotencyStore } from "../../src/store/idempotency.ts";
import { fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import { serve, tempDir } from "../helpers/serve.ts";
import type { Ask } from "../helpers/serve.ts";

const keyed = (body: object, key = "k1"): Ask => ({ method: "POST", body, headers: { "idempotency-key": key } });

function countingManager(): { manager: ReturnType<typeof fakeManager>; calls: () => number } {
  let calls = 0;
  const manager = fakeManager({
    sandboxes: { create: async () => [sandboxInfo(`sb-${++calls}`)] },
    execution: { exec: async () => ({ stdout: String(++calls) }) as never },
  });
  return { manager, calls: () => calls };
}

test("the same request with the same key gets the stored answer and is not executed again", async (t) => {
  const { manager, calls } = countingManager();
  const fixture = await serve(t, { manager });
  const first = await fixture.ask("/v1/sandboxes", keyed({ snapshot_tag: "a" }));
  const second = await fixture.ask("/v1/sandboxes", keyed({ snapshot_tag: "a" }));
  assert.equal(first.status, 201);
  assert.equal(first.headers["idempotent-replayed"], undefined);
  assert.equal(second.status, 201);
  assert.equal(second.headers["idempotent-replayed"], "true");
  assert.equal(second.text, first.text);
  assert.equal(calls(), 1);
});

test("the same key for another request is refused", async (t) => {
  const { manager } = countingManager();
  const fixture = await serve(t, { manager });
  await fixture.ask("/v1/sandboxes", keyed({ snapshot_tag: "a" }));
  for (const [path, body] of [
    ["/v1/sandboxes", { snapshot_tag: "b" }],
    ["/v1/sandboxes/x/exec", { args: ["a"] }],
  ] as const) {
    const reply = await fixture.ask(path, keyed(body));
    assert.equal(reply.status, 422);
    assert.equal(reply.json()["code"], "IDEMPOTENCY_MISMATCH");
  }
});

test("a key belongs to the client that used it", async (t) => {
  const { manager, calls } = countingManager();
  const fixture = await serve(t, { manager });
  const { token } = fixture.services.tokens.create({ name: "other", scope: "exec", max_sandboxes: null });
  await fixture.ask("/v1/sandboxes", keyed({ snapshot_tag: "a" }));
  await fixture.ask("/v1/sandboxes", { ...keyed({ snapshot_tag: "a" }), tcp: true, token });
  assert.equal(calls(), 2);
});

test("of several concurrent requests one is executed, and the others wait for its answer", async (t) => {
  const release = Promise.withResolvers<void>();
  let calls = 0;
  const manager = fakeManager({
    execution: {
      exec: async () => {
        calls++;
        await release.promise;
        return { stdout: "x" } as never;
      },
    },
  });
  const fixture = await serve(t, { manager });
  const asked = Array.from({ length: 5 }, () => fixture.ask("/v1/sandboxes/a/exec", keyed({ args: ["x"] })));
  // A different request with a key in use is refused at once; when this is answered, all five have been received.
  const other = await fixture.ask("/v1/sandboxes/a/exec", keyed({ args: ["y"] }));
  assert.equal(other.status, 422);
  release.resolve();
  const replies = await Promise.all(asked);
  assert.deepEqual(
    replies.map(({ status }) => status),
    [200, 200, 200, 200, 200],
  );
  assert.equal(replies.filter(({ headers }) => headers["idempotent-replayed"]).length, 4);
  assert.equal(calls, 1);
});

test("a failure is not stored: the next request is executed", async (t) => {
  let calls = 0;
  const manager = fakeManager({
    sandboxes: {
      create: async () => {
        if (++calls === 1) throw new ForkdError("BUSY", "Cannot fork: busy.");
        return [sandboxInfo("sb")];
      },
    },
  });
  const fixture = await serve(t, { manager });
  const refused = await fixture.ask("/v1/sandboxes", keyed({ snapshot_tag: "a" }));
  assert.equal(refused.status, 503);
  assert.ok(refused.headers["retry-after"]);
  assert.equal((await fixture.ask("/v1/sandboxes", keyed({ snapshot_tag: "a" }))).status, 201);
});

test("an answer journaled with the creation survives a later failure", async (t) => {
  let calls = 0;
  const manager = fakeManager({
    sandboxes: {
      create: async (_request, caller) => {
        calls++;
        caller.remember?.(201, [sandboxInfo("made")]);
        throw new Error("the answer was lost");
      },
    },
  });
  const fixture = await serve(t, { manager });
  assert.equal((await fixture.ask("/v1/sandboxes", keyed({ snapshot_tag: "a" }))).status, 500);
  const again = await fixture.ask("/v1/sandboxes", keyed({ snapshot_tag: "a" }));
  assert.equal(again.status, 201);
  assert.match(again.text, /made/);
  assert.equal(calls, 1);
});

test("after a crash, a request without effects is repeated and one with possible effects is not", async (t) => {
  const path = join(await tempDir(t), "state.db");
  const body = { snapshot_tag: "a", n: 1, per_item: false };
  const exec = { args: ["x"], timeout_secs: 30, encoding: "utf8", max_output_bytes: 8 * 1024 * 1024 };
  {
    // the row of a request during which the daemon died
    const db = new Db(path);
    const store = new IdempotencyStore(db);
    const none = { params: undefined, query: undefined };
    store.begin({ project: "default", principal: "local" }, "fork", hashRequest("createSandboxes", { ...none, body }));
    store.begin(
      { project: "default", principal: "local" },
      "exec",
      hashRequest("execCommand", { ...none, params: { id: "a" }, body: exec }),
    );
    db.close();
  }
  const { manager, calls } = countingManager();
  const fixture = await serve(t, { manager, dbPath: path });
  assert.equal((await fixture.ask("/v1/sandboxes", keyed({ snapshot_tag: "a" }, "fork"))).status, 201);
  const unknown = await fixture.ask("/v1/sandboxes/a/exec", keyed({ args: ["x"] }, "exec"));
  assert.equal(unknown.status, 409);
  assert.equal(unknown.json()["code"], "OUTCOME_UNKNOWN");
  assert.equal(calls(), 1);
});

test("an answer survives a restart", async (t) => {
  const path = join(await tempDir(t), "state.db");
  await t.test("before", async (inner) => {
    const { manager } = countingManager();
    const fixture = await serve(inner, { manager, dbPath: path });
    await fixture.ask("/v1/sandboxes", keyed({ snapshot_tag: "a" }));
  });
  await t.test("after", async (inner) => {
    const { manager, calls } = countingManager();
    const fixture = await serve(inner, { manager, dbPath: path });
    const reply = await fixture.ask("/v1/sandboxes", keyed({ snapshot_tag: "a" }));
    assert.equal(reply.headers["idempotent-replayed"], "true");
    assert.equal(calls(), 0);
  });
});

test("secrets are not stored: a key is refused if the answer is a secret", async (t) => {
  const fixture = await serve(t);
  const reply = await fixture.ask("/v1/tokens", keyed({ name: "a" }));
  assert.equal(reply.status, 400);
  assert.equal(reply.json()["code"], "BAD_REQUEST");
  assert.deepEqual(fixture.services.tokens.list(), []);
  const link = await fixture.ask("/v1/sandboxes/sb-a/ports/80/preview", keyed({}));
  assert.deepEqual([link.status, link.json()["code"]], [400, "BAD_REQUEST"]);
});

test("a repeated request with progress gets its result as a line", async (t) => {
  let calls = 0;
  const manager = fakeManager({ snapshots: { create: async () => ({ tag: `t${++calls}` }) as never } });
  const fixture = await serve(t, { manager });
  const ask = { ...keyed({ tag: "a" }), headers: { "idempotency-key": "k", accept: "application/x-ndjson" } };
  const first = await fixture.ask("/v1/snapshots", ask);
  const second = await fixture.ask("/v1/snapshots", ask);
  assert.deepEqual(second.json(), { result: { tag: "t1" }, status: 201 });
  assert.equal(second.text, first.text);
  assert.equal(second.headers["idempotent-replayed"], "true");
});
