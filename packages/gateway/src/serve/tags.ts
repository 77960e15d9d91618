// Tags in a cluster: one that a user gives means one snapshot. Automatic tags contain the node's code and need no entry.

import { ForkdError } from "@forkd/runtime/errors";
import { Conflict, tagKey, type ClusterState } from "../state/state.ts";
import type { Cluster } from "./cluster.ts";
import type { Node } from "../nodes/node.ts";
import type { Asker } from "../nodes/signer.ts";

const PROJECT = "default";
/** So long the snapshot of an entry may still be in the making, and its node has no tag yet */
const MAKING_MS = 15 * 60 * 1000;

/** Nodes that have the tag or id: by their lists, by the code in it, or by asking all. Empty: no node has it */
export async function holdersOf({ nodes, places }: Cluster, tag: string, as: Asker): Promise<Node[]> {
  const listed = nodes.up.filter((node) => node.tags.has(tag) || node.snapshots.has(tag));
  if (listed.length > 0) return listed;
  const made = nodes.ofId(tag);
  if (made?.isUp) {
    const { status } = await made.ask("GET", `/v1/snapshots/${encodeURIComponent(tag)}`, { as });
    if (status === 200) return [made];
  }
  const found = await places.find("snapshots", tag, as);
  return found ? [found] : [];
}

/** Node with which a tag is registered */
export function registeredNode(state: ClusterState, tag: string): string | null {
  const node = state.get("tags", tagKey(PROJECT, tag))?.value["node"];
  return typeof node === "string" ? node : null;
}

/**
 * Registers the tag for a snapshot that the node makes. Returns the node that has it instead, or null. Throws
 * CLUSTER_STATE_UNAVAILABLE
 */
export async function registerTag(cluster: Cluster, tag: string, node: Node, as: Asker): Promise<Node | null> {
  const { state, nodes } = cluster;
  const key = tagKey(PROJECT, tag);
  for (let attempt = 0; ; attempt++) {
    const known = state.get("tags", key);
    const owner = known && nodes.byCode(String(known.value["node"]));
    const isNew = known !== undefined && Date.now() - Number(known.value["at_ms"]) < MAKING_MS;
    if (owner && owner !== node && (isNew || (await stillHas(owner, tag, as)))) return owner;
    const other = known ? undefined : nodes.up.find((each) => each !== node && each.tags.has(tag));
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

export async function unregisterTag({ state }: Cluster, tag: string): Promise<void> {
  const key = tagKey(PROJECT, tag);
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
async function stillHas(node: Node, tag: string, as: Asker): Promise<boolean> {
  if (!node.isUp || node.tags.has(tag)) return true;
  const { status } = await node.ask("GET", `/v1/snapshots/${encodeURIComponent(tag)}`, { as });
  return status === 200;
}
