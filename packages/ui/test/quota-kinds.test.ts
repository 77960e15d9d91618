import assert from "node:assert/strict";
import { test } from "node:test";
import { changesOf, flagsOf, QUOTA_KINDS, usesOf } from "../src/pages/quota-kinds.ts";
import type { Quota } from "forkd";

function quota(value: number | null, over: Partial<Quota> = {}): Quota {
  return { ...(Object.fromEntries(QUOTA_KINDS.map(({ key }) => [key, value])) as Quota), ...over };
}

test("limited kinds come first, with the share that is used; one without a limit has none", () => {
  const limits = quota(null, { sandboxes: 20, memory_mib: 1024, snapshots: 0 });
  const used = { ...quota(0), sandboxes: 5, memory_mib: 4096, snapshots: 0, vcpus: 7 } as Record<keyof Quota, number>;
  const shown = usesOf({ limits, used }).map(({ label, percent, text }) => [label, percent, text]);
  assert.equal(shown.length, QUOTA_KINDS.length);
  assert.deepEqual(shown.slice(0, 5), [
    ["Sandboxes", 25, "5 of 20"],
    ["Memory", 100, "4.0 GiB of 1.0 GiB"],
    ["Snapshots", 100, "0 of 0"],
    ["Suspended", null, "0"],
    ["CPUs", null, "7"],
  ]);
});

test("only limits that differ are changed, and the command line says the same", () => {
  const limits = quota(null, { sandboxes: 20, vcpus: 4 });
  const changes = changesOf(limits, { sandboxes: "30", vcpus: "", suspended: "", memory_mib: "512" });
  assert.deepEqual(flagsOf(changes), ["--sandboxes", "30", "--vcpus", "none", "--memory-mib", "512"]);
  assert.deepEqual(flagsOf(changesOf(limits, { sandboxes: "20" })), []);
});
