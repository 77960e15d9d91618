// Tree of all snapshots and sandboxes.

import type { Tree, TreeNode } from "../api/snapshot.ts";
import type { Core } from "./core.ts";
import type { Registry } from "./registry.ts";

export async function treeOf({ runtime, tables }: Core, registry: Registry): Promise<Tree> {
  const tagged = new Set((await runtime.snapshots.tags()).values());
  const nodes = new Map<string, TreeNode>();
  const parents = new Map<string, string>();
  for (const { manifest } of await runtime.snapshots.everything()) {
    const tag = tagged.has(manifest.id) ? manifest.tag : null;
    const facts = { memory_mib: manifest.shape.memoryMiB, created_at_unix: Math.floor(Date.parse(manifest.createdAt) / 1000) };
    nodes.set(manifest.id, {
      id: manifest.id,
      tag,
      status: "ready",
      branched_from: manifest.branchedFrom,
      ...facts,
      sandboxes: [],
      snapshots: [],
    });
    if (manifest.memory.kind === "delta") parents.set(manifest.id, manifest.memory.base);
  }
  for (const row of tables.snapshots.all()) {
    if (row.status === "ready") continue;
    const onDisk = nodes.get(row.id);
    if (onDisk) {
      onDisk.status = row.status;
      continue;
    }
    const { id, tag, status, branched_from, memory_mib, created_at } = row;
    nodes.set(id, { id, tag, status, branched_from, memory_mib, created_at_unix: created_at, sandboxes: [], snapshots: [] });
    const source = row.branched_from === null ? undefined : registry.find(row.branched_from);
    if (source) parents.set(row.id, source.row.snapshot_id);
  }
  for (const { row } of registry.lasting) {
    const { id, name, state, metadata, memory_mib, network, created_at, expires_at } = row;
    const facts = { memory_mib, network_mode: network.mode, created_at_unix: created_at, expires_at_unix: expires_at };
    nodes.get(row.snapshot_id)?.sandboxes.push({ id, name, state, metadata, ...facts });
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
