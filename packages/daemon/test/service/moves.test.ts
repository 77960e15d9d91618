// Moves between two stores, with packs and without VMs: which of the two owns the sandbox at each step.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Limits } from "../../src/service/limits.ts";
import { Moves } from "../../src/service/moves.ts";
import { MoveStore } from "../../src/store/moves.ts";
import { CALLER, World } from "./helpers/world.ts";

const GATEWAY = { ...CALLER, principal: "gateway", project: "*" };

function movesOf(world: World, node: string): Moves {
  const { core, registry, lineage } = world.store;
  Object.assign(core, { node });
  const { sandboxes, snapshots, suspension, workspaces } = world;
  const limits = new Limits(core, registry);
  return new Moves(core, { store: new MoveStore(core.db), registry, lineage, sandboxes, snapshots, suspension, workspaces, limits });
}

async function carry(from: World, to: World, { id, tag }: { id: string; tag: string }): Promise<void> {
  const { bytes } = await from.packs.read(id, { level: 1, without: [] }, CALLER);
  const pieces: Buffer[] = [];
  for await (const piece of bytes) pieces.push(piece);
  await to.unpack(Buffer.concat(pieces), tag);
}

test("a sandbox belongs to its node until that gives it up, then to the other one, as it was", async () => {
  await using one = await World.make();
  await using two = await World.make();
  const [from, to] = [movesOf(one, "aaaa"), movesOf(two, "bbbb")];
  await one.create("py");
  const { id } = await one.fork("py");
  const entry = one.store.registry.get(id, CALLER);
  const ends = Math.floor(Date.now() / 1000) + 1000;
  one.store.registry.change(entry, { name: "web", metadata: { a: "b" }, expires_at: ends, ttl_secs: 5000 });

  const departure = await from.depart(id, GATEWAY);
  assert.deepEqual(await from.depart(id, GATEWAY), departure, "a repetition has the same result");
  assert.equal(entry.row.state, "suspended");
  assert.throws(() => one.store.registry.change(entry, { name: "other" }), { code: "BUSY" });
  const use = one.sandboxes.use(id, CALLER, async () => "used");
  const waiting = assert.rejects(use, { code: "SANDBOX_MOVED", details: { sandbox: id, node: "bbbb" } });
  assert.deepEqual(await to.reserve(departure), []);
  await assert.rejects(to.arrive(id), "its state is not there yet");
  await carry(one, two, departure.snapshot);
  await to.arrive(id);
  assert.equal(two.store.registry.find(id, CALLER), undefined, "it is not the other node's yet");

  await from.leave(id, "bbbb", GATEWAY);
  await from.leave(id, "bbbb", GATEWAY);
  await assert.rejects(from.leave(id, "cccc", GATEWAY), { code: "SANDBOX_MOVED" });
  await waiting;
  assert.equal(from.nodeOf(id), "bbbb");
  assert.equal(one.store.registry.find(id, CALLER), undefined);

  const [first, second] = await Promise.all([to.settle(id, GATEWAY), to.settle(id, GATEWAY)]);
  for (const each of [first, second]) assert.deepEqual(each, { state: "running", problem: null });
  const { row } = two.store.registry.get("web", CALLER);
  assert.deepEqual([row.id, row.state, row.metadata, row.expires_at, row.ttl_secs], [id, "running", { a: "b" }, ends, 5000]);
  assert.equal(row.certificate.identity.machine_id, departure.sandbox?.certificate.identity.machine_id);
});

test("a move that is given up, or interrupted by the end of the daemon, leaves the sandbox running where it was", async () => {
  await using one = await World.make();
  await using two = await World.make();
  const [from, to] = [movesOf(one, "aaaa"), movesOf(two, "bbbb")];
  await one.create("py");
  const { id } = await one.fork("py");
  const departure = await from.depart(id, GATEWAY);
  await to.reserve(departure);
  await carry(one, two, departure.snapshot);
  await from.stay(id);
  await to.drop(id);
  const { row } = one.store.registry.get(id, CALLER);
  assert.equal(row.state, "running");
  await assert.rejects(from.leave(id, "bbbb", GATEWAY), { code: "BUSY" });
  await assert.rejects(to.settle(id, GATEWAY), { code: "NOT_FOUND" });
  assert.deepEqual(await two.store.snapshots.ids(), [], "what was received is removed");

  // the next daemon finds it suspended, and its move recorded
  await one.suspension.suspend(id, CALLER);
  const was = { state: "running", expires_at: null };
  new MoveStore(one.store.core.db).put("departing", { id, project: "default", name: null, node: "aaaa", record: was, at: 1 });
  await movesOf(one, "aaaa").recover();
  assert.equal(one.store.registry.get(id, CALLER).row.state, "running");
});

test("a daemon that ends waits for the moves, suspends what no gateway took, and the next one resumes exactly that", async () => {
  await using one = await World.make();
  const from = movesOf(one, "aaaa");
  await one.create("py");
  const [moved, left, asleep] = [await one.fork("py"), await one.fork("py"), await one.fork("py")];
  await one.suspension.suspend(asleep.id, CALLER);
  const ends = Math.floor(Date.now() / 1000) + 1000;
  one.store.registry.change(one.store.registry.get(left.id, CALLER), { expires_at: ends });
  const { signal } = new AbortController();
  const over = from.leaveAll({ withinMs: 500, signal });
  await from.depart(moved.id, GATEWAY);
  await from.leave(moved.id, "bbbb", GATEWAY);
  await over;
  assert.deepEqual(one.store.registry.live, []);
  assert.equal(from.nodeOf(moved.id), "bbbb");
  assert.equal(one.store.registry.get(left.id, CALLER).row.state, "suspended");
  // as the end of the process does, without a verdict
  const { core, registry } = one.store;
  assert.deepEqual(
    new MoveStore(core.db).all("departing").map(({ id }) => id),
    [left.id],
  );
  for (const entry of registry.lasting) Object.assign(entry, { isDeparting: false, transition: undefined });
  await movesOf(one, "aaaa").recover();
  assert.equal(registry.get(left.id, CALLER).row.state, "running");
  assert.equal(registry.get(left.id, CALLER).row.expires_at, ends);
  assert.equal(registry.get(asleep.id, CALLER).row.state, "suspended");
});

test("without gateways, or when all has moved, a daemon that ends does not wait", async () => {
  await using one = await World.make();
  const from = movesOf(one, "aaaa");
  await one.create("py");
  const { signal } = new AbortController();
  const startMs = performance.now();
  await from.leaveAll({ withinMs: 3_600_000, signal });
  const { id } = await one.fork("py");
  await from.leaveAll({ withinMs: 0, signal });
  assert.ok(performance.now() - startMs < 60_000);
  assert.equal(one.store.registry.get(id, CALLER).row.state, "suspended");
});

test("one gateway at a time moves the sandboxes of a daemon that ends, until it is silent", async (t) => {
  await using one = await World.make();
  const moves = movesOf(one, "aaaa");
  t.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  assert.ok(moves.claim("first"));
  assert.ok(!moves.claim("second"));
  t.mock.timers.tick(8000);
  assert.ok(moves.claim("first"));
  t.mock.timers.tick(8000);
  assert.ok(!moves.claim("second"));
  t.mock.timers.tick(3000);
  assert.ok(moves.claim("second"));
  assert.ok(!moves.claim("first"));
});

test("what was received stays until a gateway has learned whose it is, also over a restart", async () => {
  await using one = await World.make();
  await using two = await World.make();
  const [from, to] = [movesOf(one, "aaaa"), movesOf(two, "bbbb")];
  await one.create("py");
  const { id } = await one.fork("py");
  const departure = await from.depart(id, GATEWAY);
  await to.reserve(departure);
  await carry(one, two, departure.snapshot);
  await to.arrive(id);
  await from.leave(id, "bbbb", GATEWAY);
  // the gateway has died here, long ago
  const { db } = two.store.core;
  db.run("UPDATE moves SET at = 1 WHERE kind = 'arriving'");
  const next = movesOf(two, "bbbb");
  await next.recover();
  assert.deepEqual(next.arriving, [{ id, from: "aaaa", at: 1 }]);
  assert.deepEqual(await next.settle(id, GATEWAY), { state: "running", problem: null });
  assert.deepEqual(next.arriving, []);
});
