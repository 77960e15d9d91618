// Answers that are kept for a day.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Db } from "../../src/store/db.ts";
import { IdempotencyStore } from "../../src/store/idempotency.ts";
import type { TestContext } from "node:test";

const HASH = Buffer.alloc(32, 1);

async function fixture(t: TestContext): Promise<{ db: Db; store: IdempotencyStore; pass: (ms: number) => void }> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-idempotency-"));
  const db = new Db(join(dir, "state.db"));
  t.after(async () => {
    db.close();
    await rm(dir, { recursive: true });
  });
  let now = 1_000_000_000_000;
  return { db, store: new IdempotencyStore(db, { nowMs: () => now }), pass: (ms) => void (now += ms) };
}

test("a request is known from its beginning, its answer from its end", async (t) => {
  const { store } = await fixture(t);
  assert.equal(store.find("me", "k"), null);
  store.begin("me", "k", HASH);
  assert.deepEqual(store.find("me", "k"), { requestHash: HASH, answer: null });
  store.finish("me", "k", { status: 201, body: "{}" });
  assert.deepEqual(store.find("me", "k")?.answer, { status: 201, body: "{}" });
  assert.equal(store.find("you", "k"), null);
});

test("the first answer stays, also when the request then fails", async (t) => {
  const { store } = await fixture(t);
  store.begin("me", "k", HASH);
  store.finish("me", "k", { status: 201, body: "1" });
  store.finish("me", "k", { status: 200, body: "2" });
  store.forget("me", "k");
  assert.deepEqual(store.find("me", "k")?.answer, { status: 201, body: "1" });
});

test("an answer goes with the transaction that it was written in", async (t) => {
  const { db, store } = await fixture(t);
  store.begin("me", "k", HASH);
  assert.throws(() =>
    db.transaction(() => {
      store.finish("me", "k", { status: 201, body: "1" });
      throw new Error("no");
    }),
  );
  assert.equal(store.find("me", "k")?.answer, null);
});

test("what is older than a day is gone, pruned or not", async (t) => {
  const { db, store, pass } = await fixture(t);
  store.begin("me", "old", HASH);
  pass(24 * 3600 * 1000);
  store.begin("me", "new", HASH);
  assert.equal(store.find("me", "old"), null);
  assert.equal(store.prune(), 1);
  assert.deepEqual(
    db.all("SELECT key FROM idempotency").map((row) => row["key"]),
    ["new"],
  );
});
