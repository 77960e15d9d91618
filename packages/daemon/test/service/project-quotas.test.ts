// Quotas of projects, and what one project sees of another.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { Quotas } from "../../src/service/quotas.ts";
import { treeOf } from "../../src/service/tree.ts";
import { Db } from "../../src/store/db.ts";
import { Projects } from "../../src/store/projects.ts";
import { tempDir } from "../../../runtime/test/image/helpers/temp-home.ts";
import { pieces } from "../../../runtime/test/pack/fake.ts";
import { CALLER, World } from "./helpers/world.ts";
import type { Caller } from "../../src/service/caller.ts";

const OTHER: Caller = { ...CALLER, principal: "acme/ci", project: "acme" };
const NONE = { n: 1, per_item: false } as const;

async function quotas(t: TestContext, clock = { ms: 0 }): Promise<{ quotas: Quotas; projects: Projects; db: Db }> {
  const db = new Db(join(await tempDir(t), "state.db"));
  t.after(() => db.close());
  const projects = new Projects(db);
  return { quotas: new Quotas(db, projects, { nowMs: () => clock.ms }), projects, db };
}

test("rates are counted in a sliding window, and say how long to wait", async (t) => {
  const clock = { ms: 1_200_000 };
  const { quotas: counted, projects } = await quotas(t, clock);
  projects.update("default", { forks_per_minute: 10, requests_per_second: 2 });
  counted.fork("default", 6);
  clock.ms += 30_000;
  counted.fork("default", 4);
  assert.throws(() => counted.fork("default", 1), {
    code: "QUOTA_EXCEEDED",
    details: { project: "default", quota: "forks_per_minute", limit: 10, used: 10, retry_after_secs: 30 },
  });
  counted.fork("acme", 100);
  clock.ms += 30_000;
  counted.fork("default", 6);
  assert.equal(counted.use("default").used.forks_per_minute, 10);
  counted.request("default");
  counted.request("default");
  assert.throws(() => counted.request("default"), { code: "QUOTA_EXCEEDED", message: /2 requests in a second, and 2 are in use/ });
  clock.ms += 1000;
  counted.request("default");
});

test("the use of other nodes counts, until gateways no longer state it", async (t) => {
  const clock = { ms: 1_200_000 };
  const { quotas: counted, projects } = await quotas(t, clock);
  projects.update("default", { sandboxes: 5, forks_per_minute: 10, egress_bytes: 100 });
  const { used } = counted.use("default");
  counted.noteElsewhere("default", { ...used, sandboxes: 5, forks_per_minute: 8, egress_bytes: 90 });
  assert.throws(() => counted.foresee("default", { sandboxes: 1 }), {
    code: "QUOTA_EXCEEDED",
    details: { project: "default", quota: "sandboxes", limit: 5, used: 5 },
  });
  counted.fork("default", 2);
  assert.throws(() => counted.fork("default", 1), { code: "QUOTA_EXCEEDED" });
  assert.equal(counted.send("default", 11), false);
  assert.equal(counted.send("default", 10), true);
  assert.equal(counted.use("default").used.sandboxes, 0, "a node reports its own use");
  clock.ms += 120_000;
  counted.foresee("default", { sandboxes: 5 });
});

test("egress is counted per month, and survives a restart without a gain", async (t) => {
  const clock = { ms: Date.parse("2026-11-30T23:59:00Z") };
  const { quotas: counted, projects, db } = await quotas(t, clock);
  projects.update("default", { egress_bytes: 3_000_000 });
  assert.ok(counted.send("default", 1_000_000));
  assert.ok(!counted.send("default", 2_000_001));
  assert.ok(counted.send("default", 500_000));
  const again = new Quotas(db, projects, { nowMs: () => clock.ms });
  const { egress_bytes: used } = again.use("default").used;
  assert.ok(used >= 1_500_000 && used <= 3_000_000, String(used));
  clock.ms += 60_000;
  assert.equal(again.use("default").used.egress_bytes, 0);
  assert.ok(again.send("default", 3_000_000));
});

test("a sandbox beyond the quota is refused before a VM starts, and the transaction counts too", async (t) => {
  await using world = await World.alone(await tempDir(t));
  const { core } = world.store;
  const projects = new Projects(core.db);
  const own = new Quotas(core.db, projects);
  Object.assign(core, { quotas: own });
  await world.create("py");
  projects.update("default", { sandboxes: 2, snapshots: 1 });
  await assert.rejects(world.create("more"), {
    code: "QUOTA_EXCEEDED",
    details: { project: "default", quota: "snapshots", limit: 1, used: 2 },
  });
  assert.deepEqual(own.use("default").used.snapshots, 1, "the refused one is not stored");
  await world.fork("py");
  await world.fork("py");
  assert.equal(own.use("default").used.sandboxes, 2);
  projects.update("default", { sandboxes: 1 });
  // as at the end of two forks that were admitted together
  assert.throws(() => core.db.transaction(() => own.check("default", ["sandboxes"])), {
    code: "QUOTA_EXCEEDED",
    details: { project: "default", quota: "sandboxes", limit: 1, used: 2 },
  });
});

test("things of one project do not exist for another, with the same words as if they never had", async (t) => {
  await using world = await World.alone(await tempDir(t));
  await world.create("canary");
  const info = await world.fork("canary");
  await world.sandboxes.update(info.id, { name: "canary-name" }, CALLER);
  const said = async (work: () => Promise<unknown>): Promise<string> => {
    try {
      await work();
    } catch (error) {
      const { message, hint, details } = error as Error & { hint: string; details: unknown };
      return JSON.stringify([message, hint, details]).replaceAll("canary-name", "X").replaceAll("canary", "X").replaceAll(info.id, "X");
    }
    return "it was there";
  };
  const sandbox = async (name: string): Promise<unknown> => world.sandboxes.stats(name, OTHER);
  const never = await said(async () => sandbox("X"));
  for (const name of [info.id, "canary-name"]) assert.equal(await said(async () => sandbox(name)), never);
  const snapshot = async (name: string): Promise<unknown> => world.snapshots.get(name, OTHER);
  assert.equal(await said(async () => snapshot("canary")), await said(async () => snapshot("X")));
  assert.equal(
    await said(async () => snapshot(info.snapshot_id)),
    (await said(async () => snapshot("X"))).replaceAll("X", info.snapshot_id),
  );
  const forked = async (tag: string): Promise<unknown> => world.sandboxes.create({ snapshot_tag: tag, ...NONE }, OTHER);
  assert.equal(await said(async () => forked("default/canary")), (await said(async () => forked("X"))).replaceAll("X", "default/X"));
  await assert.rejects(world.sandboxes.remove(info.id, OTHER), { code: "NOT_FOUND" });
  await assert.rejects(world.snapshots.remove("canary", { force: true, cascade: undefined }, OTHER), { code: "NOT_FOUND" });
  await assert.rejects(world.snapshots.update("canary", { visibility: "public" }, OTHER), { code: "NOT_FOUND" });
  assert.deepEqual((await world.snapshots.list({}, OTHER)).items, []);
  assert.deepEqual(world.sandboxes.list({}, OTHER).items, []);
  assert.deepEqual(await treeOf(world.store.core, world.store.registry, OTHER), { roots: [] });
  assert.deepEqual(world.store.core.events.list("acme"), []);
  assert.equal((await treeOf(world.store.core, world.store.registry, { project: "*" })).roots.length, 1);
});

test("a public snapshot can be forked by its full name, and its owner does not learn by what it is used", async (t) => {
  await using world = await World.alone(await tempDir(t));
  const stem = await world.create("stem");
  await world.snapshots.update("stem", { visibility: "public" }, CALLER);
  world.store.core.tables.snapshots.update(stem.id, { shares: [{ source: "/tmp", target: "/host" }] });
  const [theirs] = await world.sandboxes.create({ snapshot_tag: "default/stem", name: "canary", ...NONE }, OTHER);
  assert.deepEqual([theirs?.project, theirs?.snapshot_tag], ["acme", "default/stem"]);
  assert.deepEqual(theirs?.shares, [], "folders of the host stay in the project");
  await assert.rejects(world.snapshots.get("default/stem", OTHER), { code: "NOT_FOUND" });
  const { info: branch } = await world.branches.branch(theirs?.id ?? "", { tag: "stem", wait: true }, OTHER);
  assert.deepEqual([branch.tag, branch.project, branch.parent_tag], ["stem", "acme", null]);
  assert.deepEqual(
    (await world.snapshots.list({}, OTHER)).items.map(({ tag }) => tag),
    ["stem"],
  );
  const { dependents, sandboxes } = await world.snapshots.details("stem", CALLER);
  assert.deepEqual([dependents, sandboxes], [[], []]);
  for (const query of [{}, { cascade: true }])
    await assert.rejects(world.snapshots.remove("stem", { force: undefined, cascade: undefined, ...query }, CALLER), {
      code: "IN_USE",
      details: { needed_by: ["another project"] },
    });
  // the name of the own project comes first, and both are there
  assert.equal((await world.snapshots.get("stem", OTHER)).id, branch.id);
  assert.notEqual((await world.snapshots.get("stem", CALLER)).id, branch.id);
});

test("an expired snapshot is removed when nothing needs it", async (t) => {
  await using world = await World.alone(await tempDir(t));
  await world.create("old");
  await world.create("new");
  const info = await world.fork("old");
  world.store.core.tables.snapshots.update(info.snapshot_id, { expires_at: 1 });
  await world.snapshots.update("new", { expires_in_secs: 3600 }, CALLER);
  await world.snapshots.removeExpired("reaper");
  assert.equal((await world.snapshots.get("old", CALLER)).status, "ready");
  await world.sandboxes.remove(info.id, CALLER);
  await world.snapshots.removeExpired("reaper");
  assert.deepEqual(
    (await world.snapshots.list({}, CALLER)).items.map(({ tag }) => tag),
    ["new"],
  );
});

test("a pack that another project has is unpacked as a copy, with a network of its own", async (t) => {
  await using world = await World.alone(await tempDir(t));
  await world.create("packed");
  const { bytes } = await world.packs.read("packed", {}, CALLER);
  const pack = Buffer.concat(await Array.fromAsync(bytes));
  const unpack = async (force: boolean): Promise<{ snapshot: { id: string; tag: string; project: string } }> =>
    world.packs.unpack(pieces(pack), { tag: "mine", force, keep_network: undefined }, OTHER);
  const { snapshot } = await unpack(false);
  assert.deepEqual([snapshot.tag, snapshot.project], ["mine", "acme"]);
  assert.notEqual(snapshot.id, (await world.snapshots.get("packed", CALLER)).id);
  await assert.rejects(unpack(false), { code: "EXISTS", message: "Cannot make snapshot mine: it exists already." });
  const again = await unpack(true);
  assert.notEqual(again.snapshot.id, snapshot.id);
  assert.deepEqual(
    (await world.snapshots.list({}, OTHER)).items.map(({ tag }) => tag),
    ["mine"],
  );
});
