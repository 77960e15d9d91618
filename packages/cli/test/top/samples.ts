// Trees and rows of forkd top.

import { rowsOf, type Facts, type Row, type Usage, type View } from "../../src/top/rows.ts";

import type { Tree, TreeNode, TreeSandbox } from "forkd";

export const NOW = 1_800_000_000_000;

export function node(tag: string | null, sandboxes: TreeSandbox[], snapshots: TreeNode[], over: Partial<TreeNode> = {}): TreeNode {
  const facts = { nodes: ["aaaa"], project: "default", memory_mib: 256, created_at_unix: 1 };
  return { id: `sn-${tag ?? "gone"}`, tag, status: "ready", branched_from: null, ...facts, sandboxes, snapshots, ...over };
}

export function running(id: string, name: string | null = null, over: Partial<TreeSandbox> = {}): TreeSandbox {
  const facts = { node: "aaaa", memory_mib: 256, network_mode: "none", created_at_unix: 1, expires_at_unix: null } as const;
  return { id, name, state: "running", metadata: {}, ...facts, ...over };
}

export const TREE: Tree = {
  roots: [
    node(
      "python",
      [running("sb-2", null, { metadata: { team: "search" } }), running("sb-1", "web")],
      [node("login", [running("sb-3", null, { state: "suspended" })], [], { branched_from: "sb-1" })],
    ),
    node("empty", [], []),
  ],
};

function usage(cpu: number | undefined, mib: number): Usage {
  return { cpu, memoryBytes: mib * 1024 ** 2, processBytes: 2 * mib * 1024 ** 2, diskBytes: null };
}

export const FACTS: Facts = {
  tree: TREE,
  usage: new Map([
    ["sb-1", usage(1, 10)],
    ["sb-2", usage(50, 5)],
  ]),
  createdAt: new Map([
    ["sb-1", NOW / 1000 - 7200],
    ["sb-2", NOW / 1000 - 60],
  ]),
};

export function rows(view: Partial<View> = {}, facts: Facts = FACTS): Row[] {
  return rowsOf(facts, { sort: "name", filter: "", collapsed: new Set(), ...view });
}
