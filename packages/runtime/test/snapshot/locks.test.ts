// The lock of a snapshot that is in use.

import assert from "node:assert/strict";
import { test } from "node:test";
import { SnapshotLocks } from "../../src/snapshot/locks.ts";
import type { Snapshot } from "../../src/snapshot/store.ts";

const SNAPSHOT = { manifest: { id: "sn-1", tag: "base" } } as Snapshot;

test("a snapshot is not removed while something is made from it, and nothing is made from one that is being removed", async () => {
  const locks = new SnapshotLocks();
  const making = Promise.withResolvers<void>();
  const work = locks.whileMaking(SNAPSHOT, async () => making.promise);
  assert.ok(locks.isHeld("sn-1"));
  await assert.rejects(
    locks.whileRemoving("sn-1", "base", async () => undefined),
    { code: "IN_USE" },
  );
  making.resolve();
  await work;
  assert.equal(locks.isHeld("sn-1"), false);
  await locks.whileRemoving("sn-1", "base", async () => {
    await assert.rejects(
      locks.whileMaking(SNAPSHOT, async () => undefined),
      { code: "NOT_FOUND" },
    );
    await assert.rejects(
      locks.whileRemoving("sn-1", "base", async () => undefined),
      { code: "IN_USE" },
    );
  });
  assert.equal(locks.isHeld("sn-1"), false);
});

test("a snapshot that is needed is held until the last work is done, and that work itself may remove it", async () => {
  const locks = new SnapshotLocks();
  await locks.whileNeeded("sn-1", async () => {
    await locks.whileNeeded("sn-1", async () => locks.whileRemoving("sn-1", "base", async () => undefined));
    assert.ok(locks.isHeld("sn-1"));
  });
  assert.equal(locks.isHeld("sn-1"), false);
  await assert.rejects(locks.whileNeeded("sn-1", async () => Promise.reject(new Error("no"))));
  assert.equal(locks.isHeld("sn-1"), false);
});
