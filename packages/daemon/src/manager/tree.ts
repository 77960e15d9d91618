// The lineage of everything, as a tree.

import type { Tree, TreeNode } from "../api/snapshot.ts";
import type { Core } from "./core.ts";
import type { Registry } from "./registry.ts";

export async function treeOf({ runtime, tables }: Core, registry: Registry): Promise<Tree> {
  const tagged = new Set((await runtime.snapshots.tags()).values());
  const nodes = new Map<string, TreeNode>();
  const parents = new Map<string, string>();
  for (const { manifest } of await runtime.snapshots.everything()) {
    const tag = tagged.has(manifest.id) ? manifest.tag : null;
    nodes.set(manifest.id, { id: manifest.id, tag, status: "ready", branched_from: manifest.branchedFrom, sandboxes: [], snapshots: [] });
    if (manifest.memory.kind === "delta") parents.set(manifest.id, manifest.memory.base);
  }
  for (const row of tables.snapshots.all()) {
    if (row.status === "ready" || nodes.has(row.id)) continue;
    nodes.set(row.id, { id: row.id, tag: row.tag, status: row.status, branched_from: row.branched_from, sandboxes: [], snapshots: [] });
    const source = row.branched_from === null ? undefined : registry.find(row.branched_from);
    if (source) parents.set(row.id, source.row.snapshot_id);
  }
  for (const { row } of registry.lasting) {
    const { id, name, state, metadata } = row;
    nodes.get(row.snapshot_id)?.sandboxes.push({ id, name, state, metadata });
  }
  const roots: TreeNode[] = [];
  for (const node of nodes.values()) {
    const parent = nodes.get(parents.get(node.id) ?? "");
    (parent?.snapshots ?? roots).push(node);
  }
  for (const node of nodes.values()) node.snapshots.sort(byTag);
  return { roots: roots.toSorted(byTag) };
}

function byTag(a: TreeNode, b: TreeNode): number {
  return (a.tag ?? a.id) < (b.tag ?? b.id) ? -1 : 1;
}
