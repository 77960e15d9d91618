// Tags in a cluster: one that a user gives means one snapshot. Automatic tags contain the node's code and need no entry.

import { ForkdError } from "@forkd/runtime/errors";
import { DEFAULT_PROJECT, storedName } from "@forkd/daemon/store/project-names";
import { Conflict, tagKey, type ClusterState } from "../state/state.ts";
import type { SnapshotInfo } from "@forkd/daemon/api/snapshot";
import type { Cluster } from "./cluster.ts";
import type { Node } from "../nodes/node.ts";
import type { Asker } from "../nodes/signer.ts";

/** So long the snapshot of an entry may still be in the making, and its node has no tag yet */
const MAKING_MS = 15 * 60 * 1000;

/** The snapshot of a tag or id in the lists of a node, if the asker may fork it: its project's own, or a public one */
export function listed(node: Node, reference: string, { identity }: Asker): SnapshotInfo | undefined {
  const project = identity?.project ?? DEFAULT_PROJECT;
  const info = node.snapshots.get(node.tags.get(storedName(reference, project)) ?? reference);
  return info && (info.project === project || info.visibility === "public") ? info : undefined;
}

/** Nodes that have the tag or id: by their lists, by the code in it, or by asking all. Empty: no node has it */
export async function holdersOf({ nodes, places }: Cluster, tag: string, as: Asker): Promise<Node[]> {
  const listing = nodes.up.filter((node) => listed(node, tag, as));
  if (listing.length > 0) return listing;
  const made = nodes.ofId(tag);
  if (made?.isUp) {
    const { status } = await made.ask("GET", `/v1/snapshots/${encodeURIComponent(tag)}`, { as });
    if (status === 200) return [made];
  }
  const found = await places.find("snapshots", tag, as);
  return found ? [found] : [];
}

/** Node with which a tag is registered */
export function registeredNode(state: ClusterState, tag: string, as: Asker): string | null {
  const node = state.get("tags", keyOf(tag, as))?.value["node"];
  return typeof node === "string" ? node : null;
}

/**
 * Registers the tag for a snapshot that the node makes. Returns the node that has it instead, or null. Throws
 * CLUSTER_STATE_UNAVAILABLE
 */
export async function registerTag(cluster: Cluster, tag: string, node: Node, as: Asker): Promise<Node | null> {
  const { state, nodes } = cluster;
  const key = keyOf(tag, as);
  const stored = storedName(tag, as.identity?.project ?? DEFAULT_PROJECT);
  for (let attempt = 0; ; attempt++) {
    const known = state.get("tags", key);
    const owner = known && nodes.byCode(String(known.value["node"]));
    const isNew = known !== undefined && Date.now() - Number(known.value["at_ms"]) < MAKING_MS;
    if (owner && owner !== node && (isNew || (await stillHas(owner, stored, as)))) return owner;
    const other = known ? undefined : nodes.up.find((each) => each !== node && each.tags.has(stored));
    if (other) return other;
    if (known && owner === node) return null;
    try {
      await state.put("tags", key, { tag, node: node.label, at_ms: Date.now() }, known?.version ?? null);
      return null;
    } catch (error) {
      if (!(error instanceof Conflict) || attempt === 3) throw error instanceof Conflict ? exists(tag) : error;
    }
  }
}

export async function unregisterTag({ state }: Cluster, tag: string, as: Asker): Promise<void> {
  const key = keyOf(tag, as);
  const known = state.get("tags", key);
  if (!known) return;
  try {
    await state.remove("tags", key, known.version);
  } catch (error) {
    // changed meanwhile: then it is no longer ours
    if (!(error instanceof Conflict)) throw error;
  }
}

export function exists(tag: string): ForkdError {
  return new ForkdError("EXISTS", `Cannot make snapshot ${tag}: the cluster has one with this tag.`);
}

/** An entry whose node has removed the snapshot by itself is void; one whose node does not answer is not */
async function stillHas(node: Node, stored: string, as: Asker): Promise<boolean> {
  if (!node.isUp || node.tags.has(stored)) return true;
  const bare = stored.slice(stored.indexOf("/") + 1);
  const { status } = await node.ask("GET", `/v1/snapshots/${encodeURIComponent(bare)}`, { as });
  return status === 200;
}

/** Tags of two projects do not collide */
function keyOf(tag: string, { identity }: Asker): string {
  return tagKey(identity?.project ?? DEFAULT_PROJECT, tag);
}
