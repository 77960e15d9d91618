// Lists that follow their changes, by a server that ends and breaks watches.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { FakeApi } from "../helpers/fake-api.ts";
import { until } from "../helpers/gateway.ts";
import type { Cache, KubernetesObject } from "../../src/kubernetes/cache.ts";

test("a list has the objects of the start, and follows what is added, changed and removed", async (t) => {
  const { api, cache } = await follow(t, ["a", "b"]);
  assert.deepEqual(names(cache), ["a", "b"]);
  let count = 0;
  const forget = cache.observe(() => count++);
  api.put("c");
  api.remove("a");
  await until(() => names(cache).join() === "b,c");
  assert.equal(count, 2);
  forget();
  api.put("d");
  await until(() => names(cache).length === 3);
  assert.equal(count, 2);
});

test("a watch that ends after its time is opened again without another list", async (t) => {
  const { api, cache } = await follow(t, ["a"]);
  const lists = count(api);
  api.endWatches();
  await until(() => api.watching === 1);
  api.put("b");
  await until(() => names(cache).length === 2);
  // one more request: the watch
  assert.equal(count(api), lists + 1);
  assert.equal(cache.failure, null);
});

test("a version that is too old makes it read the list again", async (t) => {
  const { api, cache } = await follow(t, ["a"]);
  api.putUnseen("b");
  api.endWatches({ code: 410, message: "too old resource version" });
  await until(() => names(cache).join() === "a,b" && api.watching === 1);
});

test("without the server the last state stays, and what has changed meanwhile is read when it is back", async (t) => {
  const { api, cache } = await follow(t, ["a"]);
  await api.down();
  await until(() => cache.failure !== null);
  assert.deepEqual(names(cache), ["a"]);
  api.remove("a");
  api.put("b");
  await api.up();
  await until(() => names(cache).join() === "b" && cache.failure === null);
});

test("changes arrive in any pieces, also within a character", async (t) => {
  const { api, cache } = await follow(t, []);
  const line = Buffer.from(`${JSON.stringify({ type: "ADDED", object: { metadata: { name: "é", resourceVersion: "9" } } })}\n`);
  for (const byte of line) api.writeRaw(Buffer.from([byte]));
  await until(() => names(cache).join() === "é");
});

test("something that is no change makes it read the list again", async (t) => {
  const { api, cache } = await follow(t, ["a"]);
  api.putUnseen("b");
  api.writeRaw("<html>\n");
  await until(() => names(cache).join() === "a,b");
});

test("a bookmark is no change", async (t) => {
  const { api, cache } = await follow(t, ["a"]);
  let count = 0;
  cache.observe(() => count++);
  api.writeRaw(`${JSON.stringify({ type: "BOOKMARK", object: { metadata: { resourceVersion: "99" } } })}\n`);
  api.put("b");
  await until(() => names(cache).length === 2);
  assert.equal(count, 1);
});

test("a right that is missing is named, and the waits between requests grow", async (t) => {
  const api = await FakeApi.start(t);
  api.refuse = () => 403;
  const client = await api.client(t);
  await using cache = client.cache(client.path("v1", "secrets"));
  assert.equal(await cache.isComplete(900), false);
  assert.match(String(cache.failure), /403: refused with 403/);
  // after 0, 250 and 750 ms
  assert.ok(api.seen.length <= 3, `${api.seen.length} requests`);
});

test("a write is waited for until the list has it, and for a bounded time", async (t) => {
  const { api, cache } = await follow(t, []);
  setTimeout(() => api.put("late"), 100);
  await cache.seen((all) => all.length === 1);
  assert.equal(names(cache).join(), "late");
  await cache.seen((all) => all.length === 7);
});

async function follow(t: TestContext, existing: string[]): Promise<{ api: FakeApi; cache: Cache<KubernetesObject> }> {
  const api = await FakeApi.start(t);
  for (const name of existing) api.put(name);
  const client = await api.client(t);
  const cache = client.cache(client.path("v1", "secrets"));
  t.after(async () => cache[Symbol.asyncDispose]());
  assert.ok(await cache.isComplete(20_000), String(cache.failure));
  await until(() => api.watching === 1);
  return { api, cache };
}

function names(cache: Cache<KubernetesObject>): string[] {
  return cache
    .list()
    .map(({ metadata }) => metadata?.name ?? "")
    .sort();
}

function count({ seen }: FakeApi): number {
  return seen.length;
}
