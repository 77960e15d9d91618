// Requests of deeplethe/forkd's clients that forkd does not support.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { limitFields } from "../../src/service/limit-fields.ts";
import { snapshotWarnings, spawnRequest } from "../../src/service/older-api.ts";

const cannot = async (): Promise<never> => {
  throw new ForkdError("LIMIT_UNAVAILABLE", "Cannot apply memory_limit_mib: no cgroup.");
};
const can = async (): Promise<void> => undefined;

test("a kernel or rootfs without an image is refused by name", () => {
  const refused = (given: object, message: RegExp): void =>
    assert.throws(() => snapshotWarnings({ tag: "t", ...given }), { code: "BAD_REQUEST", message, hint: /image/ });
  refused({ kernel: "/k", rootfs: "/r" }, /kernel and rootfs/);
  refused({ kernel: "/k" }, /of kernel:/);
  refused({ rootfs: "/r", tap: "tap0" }, /of rootfs:/);
  assert.deepEqual(snapshotWarnings({ tag: "t", image: "py", rootfs: "/r", rw: false }), [
    "rootfs has no effect: forkd needs no such set-up.",
  ]);
  assert.equal(snapshotWarnings({ tag: "t", tap: "tap0", boot_wait_secs: 10 }).length, 2);
});

test("a memory limit that cannot be applied is a warning for clients that send a field of the older API", async () => {
  const older = await spawnRequest({ per_child_netns: false, memory_limit_mib: 256 }, cannot);
  assert.equal(older.request.memory_limit_mib, null);
  assert.deepEqual(older.warnings, ["memory_limit_mib has no effect: Cannot apply memory_limit_mib: no cgroup."]);
  assert.deepEqual(await spawnRequest({ per_child_netns: true, memory_limit_mib: 256 }, can), {
    request: { per_child_netns: true, memory_limit_mib: 256 },
    warnings: ["per_child_netns has no effect: forkd needs no such set-up."],
  });
});

test("huge pages are not an option of a fork: the warning names the request that has it", async () => {
  const { warnings } = await spawnRequest({ hugepages: true }, can);
  assert.deepEqual(warnings, ["hugepages has no effect: it is an option of `POST /v1/snapshots`."]);
});

test("for every other client it is refused, and other errors are not suppressed", async () => {
  assert.deepEqual(await spawnRequest({ memory_limit_mib: 256 }, cannot), { request: { memory_limit_mib: 256 }, warnings: [] });
  const broken = async (): Promise<never> => {
    throw new ForkdError("CONFINEMENT_UNAVAILABLE", "Cannot start VMs.");
  };
  await assert.rejects(spawnRequest({ prewarm: false, memory_limit_mib: 256 }, broken), { code: "CONFINEMENT_UNAVAILABLE" });
});

test("a memory limit of 0 means none", async () => {
  assert.deepEqual((await spawnRequest({ per_child_netns: false, memory_limit_mib: 0 }, cannot)).warnings, []);
  assert.equal(limitFields({ memory_limit_mib: 0 }).memory_limit_mib, null);
});
