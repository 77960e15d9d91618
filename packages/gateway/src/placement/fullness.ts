// How full a node is, and which nodes count as crowded.

import type { ForkRequest, NodeFacts } from "./facts.ts";

/**
 * From this share on a node is crowded. It still takes forks, but it is no longer preferred for being warm, and hot
 * snapshots are fetched to other nodes
 */
export const CROWDED = 0.7;

/** Share in use of what the node has least of: places, memory or processors. With a request: after its children */
export function fullness({ places, memory, load }: NodeFacts, request?: ForkRequest): number {
  const count = request?.count ?? 0;
  const memoryMiB = count * (request?.snapshot.memoryMiB ?? 0);
  return Math.max((places.used + count) / places.max, 1 - (memory.freeMiB - memoryMiB) / memory.totalMiB, load);
}

/** The facts after children were sent to the node: what a gateway counts until the node's next report */
export function afterSending(node: NodeFacts, { snapshot }: ForkRequest, count: number): NodeFacts {
  const { memory, places } = node;
  return {
    ...node,
    memory: { ...memory, freeMiB: memory.freeMiB - count * snapshot.memoryMiB },
    places: { ...places, used: places.used + count },
  };
}
