// Stored responses, which are kept for a day.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Db } from "../../src/store/db.ts";
import { IdempotencyStore, type Client } from "../../src/store/idempotency.ts";
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

function of(principal: string): Client {
  return { project: "default", principal };
}

test("a request is known from its start, its answer from its end", async (t) => {
  const { store } = await fixture(t);
  assert.equal(store.find(of("me"), "k"), null);
  store.begin(of("me"), "k", HASH);
  assert.deepEqual(store.find(of("me"), "k"), { requestHash: HASH, answer: null });
  store.finish(of("me"), "k", { status: 201, body: "{}" });
  assert.deepEqual(store.find(of("me"), "k")?.answer, { status: 201, body: "{}" });
  assert.equal(store.find(of("you"), "k"), null);
});

test("the first answer is kept, also when the request fails later", async (t) => {
  const { store } = await fixture(t);
  store.begin(of("me"), "k", HASH);
  store.finish(of("me"), "k", { status: 201, body: "1" });
  store.finish(of("me"), "k", { status: 200, body: "2" });
  store.forget(of("me"), "k");
  assert.deepEqual(store.find(of("me"), "k")?.answer, { status: 201, body: "1" });
});

test("an answer is reverted with its transaction", async (t) => {
  const { db, store } = await fixture(t);
  store.begin(of("me"), "k", HASH);
  assert.throws(() =>
    db.transaction(() => {
      store.finish(of("me"), "k", { status: 201, body: "1" });
      throw new Error("no");
    }),
  );
  assert.equal(store.find(of("me"), "k")?.answer, null);
});

test("entries older than a day are absent, pruned or not", async (t) => {
  const { db, store, pass } = await fixture(t);
  store.begin(of("me"), "old", HASH);
  pass(24 * 3600 * 1000);
  store.begin(of("me"), "new", HASH);
  assert.equal(store.find(of("me"), "old"), null);
  assert.equal(store.prune(), 1);
  assert.deepEqual(
    db.all("SELECT key FROM idempotency").map((row) => row["key"]),
    ["new"],
  );
});

test("the number of answers per client is bounded, the newest are kept, and other clients are not affected", async (t) => {
  const { db, store, pass } = await fixture(t);
  store.begin(of("you"), "k", HASH);
  store.finish(of("you"), "k", { status: 200, body: "{}" });
  store.begin(of("me"), "under way", HASH);
  db.transaction(() => {
    for (let at = 0; at < 12_000; at++) {
      pass(10);
      store.begin(of("me"), `k${at}`, HASH);
      store.finish(of("me"), `k${at}`, { status: 200, body: "{}" });
    }
  });
  const count = Number(db.get("SELECT count(*) AS n FROM idempotency WHERE principal = 'me'")?.["n"]);
  assert.ok(count <= 10_001 && count >= 9000, `${count} are kept`);
  assert.deepEqual([store.find(of("me"), "k0"), store.find(of("me"), "k11999")?.answer?.status], [null, 200]);
  assert.deepEqual(store.find(of("me"), "under way")?.answer, null, "one that has no answer is not forgotten");
  assert.ok(store.find(of("you"), "k"));
});

test("the bytes of answers per client are bounded", async (t) => {
  const { db, store, pass } = await fixture(t);
  const body = "x".repeat(4 * 1024 * 1024);
  for (let at = 0; at < 20; at++) {
    pass(1000);
    store.begin(of("me"), `k${at}`, HASH);
    store.finish(of("me"), `k${at}`, { status: 200, body });
  }
  const bytes = Number(db.get("SELECT sum(length(body)) AS n FROM idempotency")?.["n"]);
  assert.ok(bytes <= 64 * 1024 * 1024, `${bytes} bytes are kept`);
  assert.ok(store.find(of("me"), "k19")?.answer);
});
