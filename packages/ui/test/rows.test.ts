import assert from "node:assert/strict";
import { test } from "node:test";
import { entriesOf, labelOf, parentsIn, rowsOf, type View } from "../src/tree/rows.ts";
import type { Tree, TreeNode, TreeSandbox } from "forkd";

const ALL: View = { search: "", states: new Set(), collapsed: new Set() };

function node(tag: string | null, sandboxes: TreeSandbox[], snapshots: TreeNode[] = [], branchedFrom: string | null = null): TreeNode {
  const facts = { nodes: ["aaaa"], project: "default", memory_mib: 256, created_at_unix: 1, status: "ready" as const };
  return { id: `sn-${tag ?? "gone-0123456789"}`, tag, branched_from: branchedFrom, ...facts, sandboxes, snapshots };
}

function sandbox(id: string, over: Partial<TreeSandbox> = {}): TreeSandbox {
  const facts = { node: "aaaa", memory_mib: 256, network_mode: "none", created_at_unix: 1, expires_at_unix: null } as const;
  return { id, name: null, state: "running", metadata: {}, ...facts, ...over };
}

const TREE: Tree = {
  roots: [
    node(
      "python",
      [sandbox("sb-2", { metadata: { team: "search" } }), sandbox("sb-1", { name: "web" })],
      [node("login", [sandbox("sb-3", { state: "suspended" })], [], "sb-1"), node("other", [])],
    ),
    node("empty", []),
  ],
};

function labels(view: Partial<View>, tree = TREE): string[] {
  return rowsOf(entriesOf(tree), { ...ALL, ...view }).map(({ entry, level }) => `${"  ".repeat(level - 1)}${labelOf(entry)}`);
}

test("a branch hangs below its source; named sandboxes come first", () => {
  assert.deepEqual(labels({}), ["python", "  web", "    login", "      sb-3", "  sb-2", "  other", "empty"]);
});

test("a branch whose source is gone hangs below the snapshot that it builds on", () => {
  const tree = { roots: [node("python", [], [node("login", [], [], "sb-gone"), node(null, [])])] };
  assert.deepEqual(labels({}, tree), ["python", "  login", "  removed sn-gone-0123"]);
});

test("a sandbox that descends from its own branch makes no circle", () => {
  const deep = node("state", [], [node("later", [sandbox("sb-1")], [], "sb-1")], "sb-1");
  assert.deepEqual(labels({}, { roots: [node("python", [], [deep])] }), ["python", "  state", "    later", "      sb-1"]);
});

test("an only child continues the rail of its parent; several have rails beside it", () => {
  const rows = rowsOf(entriesOf(TREE), ALL);
  const rails = rows.map(({ lane, from, through, continues }) => ({ lane, from, through: through.join(), continues }));
  assert.deepEqual(rails, [
    { lane: 0, from: null, through: "", continues: true },
    { lane: 1, from: 0, through: "0", continues: true },
    { lane: 1, from: 1, through: "0", continues: true },
    { lane: 1, from: 1, through: "0", continues: false },
    { lane: 1, from: 0, through: "0", continues: false },
    { lane: 1, from: 0, through: "", continues: false },
    { lane: 0, from: null, through: "", continues: false },
  ]);
});

test("a search finds names, ids, states and metadata, with the way to them", () => {
  assert.deepEqual(labels({ search: "team=search" }), ["python", "  sb-2"]);
  assert.deepEqual(labels({ search: "WEB" }), ["python", "  web", "    login", "      sb-3"]);
  assert.deepEqual(labels({ search: "suspended" }), ["python", "  web", "    login", "      sb-3"]);
  assert.deepEqual(labels({ search: "no such" }), []);
});

test("states filter sandboxes, also within a search", () => {
  assert.deepEqual(labels({ states: new Set(["suspended"]) }), ["python", "  web", "    login", "      sb-3"]);
  assert.deepEqual(labels({ states: new Set(["running"]), search: "login" }), []);
});

test("folded parts are left out and counted; a search shows them", () => {
  const collapsed = new Set(["sn-python"]);
  assert.deepEqual(labels({ collapsed }), ["python", "empty"]);
  assert.equal(rowsOf(entriesOf(TREE), { ...ALL, collapsed })[0]?.below, 5);
  assert.deepEqual(labels({ collapsed, search: "sb-2" }), ["python", "  sb-2"]);
  assert.deepEqual(parentsIn(entriesOf(TREE)), ["sn-python", "sb-1", "sn-login"]);
});
