// The placements that the simulation compares: forkd's own code, unchanged, and the two that are usual without it.

import { fullness } from "@forkd/gateway/placement/fullness";
import { lackOf, roomFor } from "@forkd/gateway/placement/lack";
import { place, type Candidate, type Placement, type Refused } from "@forkd/gateway/placement/place";
import type { ForkRequest, NodeFacts, Random } from "@forkd/gateway/placement/facts";

/** Nodes that may hold what a request needs; placement is faster with it */
type Index = { holders: readonly NodeFacts[] };

export type Policy = {
  name: string;
  /** "reports": the last reports of the nodes, and what the gateway itself has sent since; "now": the nodes as they are */
  sees: "reports" | "now";
  choose: (request: ForkRequest, nodes: readonly NodeFacts[], random: Random, index: Index) => Placement | Refused;
};

/** As many as placement itself names */
const CANDIDATES = 8;

export const POLICIES: readonly Policy[] = [
  { name: "forkd", sees: "reports", choose: place },
  { name: "forkd, no spreading", sees: "reports", choose: (...given) => ({ ...place(...given), spreadTo: null }) },
  { name: "least loaded, reports", sees: "reports", choose: leastLoaded },
  { name: "least loaded, now", sees: "now", choose: leastLoaded },
  { name: "random", sees: "reports", choose: atRandom },
];

/** The emptiest of all nodes, wherever the snapshot is */
function leastLoaded(request: ForkRequest, nodes: readonly NodeFacts[]): Placement | Refused {
  const best: { node: NodeFacts; full: number }[] = [];
  for (const node of nodes) {
    const full = fullness(node, request);
    if (best.length === CANDIDATES && full >= (best.at(-1)?.full ?? 0)) continue;
    if (lackOf(request, node, true)) continue;
    const at = best.findIndex((other) => full < other.full);
    best.splice(at < 0 ? best.length : at, 0, { node, full });
    if (best.length > CANDIDATES) best.pop();
  }
  return placement(
    request,
    best.map(({ node }) => node),
  );
}

/** Random nodes of those that pass the same filter */
function atRandom(request: ForkRequest, nodes: readonly NodeFacts[], random: Random): Placement | Refused {
  const chosen = new Set<NodeFacts>();
  for (let tries = 0; tries < 8 * CANDIDATES && chosen.size < CANDIDATES; tries++) {
    const node = nodes[Math.floor(random() * nodes.length)];
    if (node && !lackOf(request, node, true)) chosen.add(node);
  }
  return placement(request, [...chosen]);
}

function placement(request: ForkRequest, nodes: readonly NodeFacts[]): Placement | Refused {
  if (nodes.length === 0) return { lacks: [] };
  const candidates = nodes.map((node): Candidate => ({ node: node.code, tier: "fetch", room: roomFor(request, node) }));
  return { candidates, spreadTo: null };
}
