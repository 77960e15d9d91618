// The state in a folder: two gateways write it at once, and read what the other wrote.

import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openFolderState } from "../../src/state/folder.ts";
import { Conflict, type ClusterState } from "../../src/state/state.ts";
import { until } from "../helpers/gateway.ts";
import type { TestContext } from "node:test";

async function twoOf(t: TestContext): Promise<{ one: ClusterState; two: ClusterState; dir: string }> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-state-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const open = async (): Promise<ClusterState> => {
    const state = await openFolderState(dir, { onError: () => undefined });
    t.after(async () => state[Symbol.asyncDispose]());
    return state;
  };
  return { one: await open(), two: await open(), dir };
}

test("of two writers of one object, one gets a conflict and then sees the other's value", async (t) => {
  const { one, two } = await twoOf(t);
  const results = await Promise.allSettled([one.put("tags", "default~x", { by: 1 }, null), two.put("tags", "default~x", { by: 2 }, null)]);
  const failed = results.filter((result) => result.status === "rejected");
  assert.equal(failed.length, 1);
  assert.ok(failed[0]?.reason instanceof Conflict);
  await until(() => one.get("tags", "default~x") !== undefined && two.get("tags", "default~x") !== undefined);
  assert.deepEqual(one.get("tags", "default~x")?.value, two.get("tags", "default~x")?.value);
  await assert.rejects(one.put("tags", "default~x", { by: 3 }, "7"), Conflict);
});

test("changes and removals reach the other gateway, and a new one reads them", async (t) => {
  const { one, two, dir } = await twoOf(t);
  const changed: string[] = [];
  two.subscribe((kind, name) => changed.push(`${kind} ${name}`));
  await one.put("tokens", "ann", { n: 1 }, null);
  await until(() => two.get("tokens", "ann") !== undefined);
  await two.put("tokens", "ann", { n: 2 }, two.get("tokens", "ann")?.version ?? null);
  await until(() => one.get("tokens", "ann")?.value["n"] === 2);
  await one.remove("tokens", "ann", one.get("tokens", "ann")?.version ?? "");
  await until(() => two.get("tokens", "ann") === undefined);
  assert.deepEqual([...new Set(changed)], ["tokens ann"]);
  assert.deepEqual(
    two.removed("tokens").map(({ name }) => name),
    ["ann"],
  );
  await using third = await openFolderState(dir, { onError: () => undefined });
  assert.equal(third.get("tokens", "ann"), undefined);
  assert.equal(third.removed("tokens").length, 1, "so that nodes get it from a gateway that starts later too");
  await third.put("tokens", "ann", { n: 3 }, null);
  await until(() => one.get("tokens", "ann")?.value["n"] === 3);
  assert.equal((await readdir(join(dir, "tokens"))).length, 1, "older versions are removed");
});

test("a write on top of a version that was replaced twice is a conflict", async (t) => {
  const { one, dir } = await twoOf(t);
  await one.put("tags", "x", { n: 1 }, null);
  // what another gateway leaves behind after two writes, before this one has noticed
  writeFileSync(join(dir, "tags", "x@3.json"), JSON.stringify({ value: { n: 3 }, at_ms: 1 }));
  rmSync(join(dir, "tags", "x@1.json"));
  await assert.rejects(one.put("tags", "x", { n: 2 }, "1"), Conflict);
  assert.deepEqual(one.get("tags", "x")?.value, { n: 3 });
  assert.deepEqual(await readdir(join(dir, "tags")), ["x@3.json"]);
});

test("names that would leave the folder are refused, and foreign files have no effect", async (t) => {
  const { one, dir } = await twoOf(t);
  for (const name of ["../up", "a/b", "", "a@2", "x".repeat(200)])
    await assert.rejects(one.put("tags", name, {}, null), (error: { code?: string }) => error.code === "BAD_NAME", name);
  await writeFile(join(dir, "tags", "broken@1.json"), "{");
  await writeFile(join(dir, "tags", "other.txt"), "x");
  await one.put("tags", "good", {}, null);
  await using again = await openFolderState(dir, { onError: () => undefined });
  assert.deepEqual([...again.all("tags").keys()], ["good"]);
});

test("an object that was removed a day ago is forgotten, and a new one of its name stays", async (t) => {
  const { one, two, dir } = await twoOf(t);
  const folder = join(dir, "tokens");
  await writeFile(join(folder, "ann@2.json"), JSON.stringify({ value: null, at_ms: Date.now() - 25 * 3600 * 1000 }));
  await until(async () => (await readdir(folder)).length === 0);
  await one.put("tokens", "ann", { n: 1 }, null);
  assert.deepEqual(await readdir(folder), ["ann@1.json"]);
  await until(() => two.get("tokens", "ann") !== undefined);
  // a change makes both read the folder again
  await one.put("tokens", "ben", { n: 2 }, null);
  await until(() => two.get("tokens", "ben") !== undefined);
  assert.deepEqual((await readdir(folder)).toSorted(), ["ann@1.json", "ben@1.json"]);
});
