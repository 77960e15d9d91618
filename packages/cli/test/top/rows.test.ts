import assert from "node:assert/strict";
import { test } from "node:test";
import { differs, usageOf } from "../../src/top/rows.ts";
import { FACTS, node, rows, running, TREE } from "./samples.ts";

import type { SandboxStats } from "forkd";

const keys = (...args: Parameters<typeof rows>): string[] => rows(...args).map(({ key }) => key);

function stats(id: string, over: Partial<SandboxStats> = {}): SandboxStats {
  return { id, name: null, state: "running", cpu_ms: 0, private_guest_bytes: 1, pss_bytes: 2, disk_bytes: null, ...over };
}

test("sandboxes come before the snapshots of the same parent, names before bare ids", () => {
  assert.deepEqual(keys(), ["sn-empty", "sn-python", "sb-1", "sb-2", "sn-login", "sb-3"]);
});

test("each order sorts siblings: the largest use, and the youngest, first", () => {
  assert.deepEqual(keys({ sort: "cpu" }), ["sn-python", "sb-2", "sb-1", "sn-login", "sb-3", "sn-empty"]);
  assert.deepEqual(keys({ sort: "memory" }), ["sn-python", "sb-1", "sb-2", "sn-login", "sb-3", "sn-empty"]);
  assert.deepEqual(keys({ sort: "age" }).slice(0, 3), ["sn-python", "sb-2", "sb-1"]);
});

test("a snapshot has the sum of what is below it", () => {
  const [, python] = rows();
  assert.deepEqual([python?.usage?.cpu, python?.usage?.memoryBytes, python?.below], [51, 15 * 1024 ** 2, 4]);
  assert.equal(rows()[0]?.usage, undefined);
});

test("what is below a collapsed snapshot is left out", () => {
  const shown = rows({ collapsed: new Set(["sn-python"]) });
  assert.deepEqual(
    shown.map(({ key, isCollapsed }) => [key, isCollapsed]),
    [
      ["sn-empty", false],
      ["sn-python", true],
    ],
  );
});

test("a search finds names, states and metadata, keeps the parents, and opens collapsed parts", () => {
  assert.deepEqual(keys({ filter: "WEB" }), ["sn-python", "sb-1"]);
  assert.deepEqual(keys({ filter: "suspended", collapsed: new Set(["sn-python"]) }), ["sn-python", "sn-login", "sb-3"]);
  assert.deepEqual(keys({ filter: "team=search" }), ["sn-python", "sb-2"]);
  assert.deepEqual(keys({ filter: "login" }), ["sn-python", "sn-login", "sb-3"]);
  assert.deepEqual(keys({ filter: "none of them" }), []);
});

test("a thousand branches, each of a sandbox of the one before, are as many levels", () => {
  let deep = node("t0", [], []);
  for (let i = 1; i < 1000; i++) deep = node(`t${i}`, [], [deep]);
  assert.equal(rows({}, { ...FACTS, tree: { roots: [deep] } }).at(-1)?.depth, 999);
});

test("CPU use is the difference of two readings, and unknown after one", () => {
  assert.equal(usageOf([stats("a", { cpu_ms: 500 })], 1000).get("a")?.cpu, undefined);
  const second = usageOf([stats("a", { cpu_ms: 1500 }), stats("b")], 3000, { cpuMs: new Map([["a", 500]]), at: 1000 });
  assert.equal(second.get("a")?.cpu, 50);
  assert.equal(second.get("b")?.cpu, undefined);
  // a VMM that was replaced by a resume begins to count again
  assert.equal(usageOf([stats("a", { cpu_ms: 1 })], 3000, { cpuMs: new Map([["a", 500]]), at: 1000 }).get("a")?.cpu, 0);
});

test("a reading shows whether the tree is old", () => {
  const both = [stats("sb-1"), stats("sb-2")];
  assert.equal(differs(TREE, both), false);
  assert.equal(differs(TREE, [...both, stats("sb-9")]), true);
  assert.equal(differs(TREE, [stats("sb-1")]), true);
  assert.equal(differs(TREE, [stats("sb-1"), stats("sb-2", { state: "paused" })]), true);
  assert.equal(differs({ roots: [node("t", [running("sb-1")], [])] }, []), true);
});
