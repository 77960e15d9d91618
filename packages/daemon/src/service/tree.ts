// Tree of all snapshots and sandboxes.

import type { Tree, TreeNode } from "../api/snapshot.ts";
import { isOf, projectOf, shownName } from "../store/project-names.ts";
import type { SandboxRow } from "../store/tables.ts";
import type { Viewer } from "./caller.ts";
import type { Core } from "./core.ts";
import type { Registry } from "./registry.ts";

/** Of a project: a snapshot that builds on one of another project is a root */
export async function treeOf({ runtime, tables, node: code }: Core, registry: Registry, { project: viewer }: Viewer): Promise<Tree> {
  const tagged = new Set((await runtime.snapshots.tags()).values());
  const rows = tables.snapshots.all();
  const owners = new Map(rows.map((row) => [row.id, row.project]));
  const nodes = new Map<string, TreeNode>();
  const parents = new Map<string, string>();
  for (const { manifest } of await runtime.snapshots.everything()) {
    const project = owners.get(manifest.id) ?? projectOf(manifest.tag);
    if (!isOf(project, viewer)) continue;
    const tag = tagged.has(manifest.id) ? shownName(manifest.tag, project) : null;
    const facts = { memory_mib: manifest.shape.memoryMiB, created_at_unix: Math.floor(Date.parse(manifest.createdAt) / 1000) };
    nodes.set(manifest.id, {
      id: manifest.id,
      nodes: [code],
      project,
      tag,
      status: "ready",
      branched_from: manifest.branchedFrom,
      ...facts,
      sandboxes: [],
      snapshots: [],
    });
    if (manifest.memory.kind === "delta") parents.set(manifest.id, manifest.memory.base);
  }
  for (const row of rows) {
    if (row.status === "ready" || !isOf(row.project, viewer)) continue;
    const onDisk = nodes.get(row.id);
    if (onDisk) {
      onDisk.status = row.status;
      continue;
    }
    const { id, project, status, branched_from, memory_mib, created_at } = row;
    const tag = shownName(row.tag, project);
    const facts = { memory_mib, created_at_unix: created_at };
    nodes.set(id, { id, nodes: [code], project, tag, status, branched_from, ...facts, sandboxes: [], snapshots: [] });
    const source = row.branched_from === null ? undefined : registry.byId(row.branched_from);
    if (source) parents.set(row.id, source.row.snapshot_id);
  }
  const roots: TreeNode[] = [];
  for (const { row } of registry.lasting) {
    if (!isOf(row.project, viewer)) continue;
    const { id, name, state, metadata, memory_mib, network, created_at, expires_at } = row;
    const facts = { memory_mib, network_mode: network.mode, created_at_unix: created_at, expires_at_unix: expires_at };
    const node = nodes.get(row.snapshot_id) ?? foreignNode(row, code);
    nodes.set(row.snapshot_id, node);
    node.sandboxes.push({ id, node: code, name, state, metadata, ...facts });
  }
  for (const node of nodes.values()) {
    const parent = nodes.get(parents.get(node.id) ?? "");
    (parent?.snapshots ?? roots).push(node);
  }
  for (const node of nodes.values()) node.snapshots.sort(byTag);
  return { roots: roots.toSorted(byTag) };
}

/** Stands for a public snapshot of another project, under which this project has sandboxes */
function foreignNode({ snapshot_id: id, snapshot_tag: stored, project, memory_mib, created_at }: SandboxRow, code: string): TreeNode {
  const names = { id, nodes: [code], project: projectOf(stored), tag: shownName(stored, project) };
  return { ...names, status: "ready", memory_mib, created_at_unix: created_at, branched_from: null, sandboxes: [], snapshots: [] };
}

function byTag(a: TreeNode, b: TreeNode): number {
  return (a.tag ?? a.id) < (b.tag ?? b.id) ? -1 : 1;
}
