import assert from "node:assert/strict";
import { test } from "node:test";
import { isUtf8, treeLines } from "../src/terminal/tree-lines.ts";

import type { Tree, TreeNode, TreeSandbox } from "forkd";

function node(tag: string | null, sandboxes: TreeSandbox[], snapshots: TreeNode[], over: Partial<TreeNode> = {}): TreeNode {
  const facts = { nodes: ["aaaa"], project: "default", memory_mib: 256, created_at_unix: 1 };
  return { id: "sn-0123456789abcdef", tag, status: "ready", branched_from: null, ...facts, sandboxes, snapshots, ...over };
}

function running(id: string, name: string | null = null): TreeSandbox {
  const facts = { node: "aaaa", memory_mib: 256, network_mode: "none", created_at_unix: 1, expires_at_unix: null } as const;
  return { id, name, state: "running", metadata: {}, ...facts };
}

const TREE: Tree = {
  roots: [
    node(
      "python",
      [running("sb-1", "web"), running("sb-2")],
      [
        node("login", [running("sb-3")], [node(null, [running("sb-4")], [], { branched_from: "sb-3" })], { branched_from: "sb-1" }),
        node("half", [], [], { branched_from: "sb-2", status: "writing" }),
      ],
    ),
    node("node", [], []),
  ],
};

test("a tree has its sandboxes first, then its branches", () => {
  assert.deepEqual(treeLines(TREE, { utf8: true }), [
    "[python]",
    "├── sb-1 (web)  running",
    "├── sb-2  running",
    "├── [login]  from sb-1",
    "│   ├── sb-3  running",
    "│   └── [removed sn-012345678]  from sb-3",
    "│       └── sb-4  running",
    "└── [half]  from sb-2, writing",
    "[node]",
  ]);
});

test("without UTF-8 it is drawn with ASCII", () => {
  const lines = treeLines(TREE, { utf8: false });
  assert.equal(lines[3], "|-- [login]  from sb-1");
  assert.equal(lines.at(-2), "`-- [half]  from sb-2, writing");
  // oxlint-disable-next-line no-control-regex -- matches everything but ASCII
  assert.ok(lines.every((line) => /^[\x00-\x7f]*$/.test(line)));
});

test("the first locale variable that is set decides", () => {
  assert.equal(isUtf8({ LANG: "C.UTF-8" }), true);
  assert.equal(isUtf8({ LC_ALL: "C", LANG: "C.UTF-8" }), false);
  assert.equal(isUtf8({ LC_CTYPE: "de_DE.utf8" }), true);
  assert.equal(isUtf8({}), false);
});
