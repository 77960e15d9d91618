// Decides which nodes are asked for a fork, and in which order.

import { CROWDED, fullness } from "./fullness.ts";
import { lackOf, roomFor, type Lack } from "./lack.ts";

import type { ForkRequest, Held, NodeFacts, Random } from "./facts.ts";

/**
 * "source": runs the live sandbox that is forked; "base": holds the snapshot's base, so that only the delta is fetched;
 * "fetch": fetches all of it
 */
export type Tier = "source" | "warm" | "disk" | "base" | "fetch";

export type Candidate = {
  node: string;
  tier: Tier;
  /** how many of the children it takes; the rest is for the next candidates */
  room: number;
};

export type Placement = {
  /** in the order of asking: a node may refuse */
  candidates: readonly Candidate[];
  /** node to which the snapshot is to be fetched now, because its holders become crowded; null: none */
  spreadTo: string | null;
};

export type Refused = { lacks: readonly { node: string; lack: Lack }[] };

/** Candidates to try before the request fails, if these have room for all children */
const CANDIDATES = 8;
/**
 * A snapshot has enough copies while so many, as a share of its holders, are on nodes that are not crowded, or on their
 * way. So the copies of a hot snapshot grow before its holders refuse, and faster the more there are
 */
const SPARE_COPIES = 0.25;

/** The nodes to ask, or what each node lacks */
export function place(request: ForkRequest, nodes: readonly NodeFacts[], random: Random): Placement | Refused {
  const { snapshot, sourceNode, count } = request;
  const canFetch = snapshot.inRegistry || sourceNode !== null || nodes.some(({ holds }) => holds.has(snapshot.id));
  // in the order of preference
  const tiers: Record<Tier, NodeFacts[]> = { source: [], warm: [], disk: [], base: [], fetch: [] };
  const copies = { held: 0, spare: 0 };
  let room = 0;
  for (const node of nodes) {
    const held = node.holds.get(snapshot.id);
    const lack = lackOf(request, node, canFetch, held);
    // copies where the request cannot go do not help it
    if (lack && lack.kind !== "room") continue;
    if (held) copies.held++;
    if (held ? fullness(node) < CROWDED : node.fetching.has(snapshot.id)) copies.spare++;
    if (lack) continue;
    tiers[tierOf(request, node, held)].push(node);
    room += roomFor(request, node);
  }
  if (room < count) return refusalOf(request, nodes, canFetch);
  const isScarce = sourceNode === null && copies.spare < Math.ceil(copies.held * SPARE_COPIES);
  // before the candidates are taken out of their tiers
  const spreadTo = isScarce ? spreadOf(request, [...tiers.base, ...tiers.fetch], random) : null;
  const candidates: Candidate[] = [];
  let open = count;
  for (const [tier, members] of Object.entries(tiers) as [Tier, NodeFacts[]][])
    while (members.length > 0 && (candidates.length < CANDIDATES || open > 0)) {
      const node = takeEmptier(request, members, random);
      if (!node) break;
      const takes = roomFor(request, node);
      candidates.push({ node: node.code, tier, room: takes });
      open -= takes;
    }
  return { candidates, spreadTo };
}

function tierOf({ snapshot, sourceNode }: ForkRequest, node: NodeFacts, held: Held | undefined): Tier {
  if (node.code === sourceNode) return "source";
  // A start on a crowded node waits for longer than warmth saves.
  if (held === "warm") return fullness(node) < CROWDED ? "warm" : "disk";
  if (held === "disk") return "disk";
  return snapshot.base !== null && node.holds.has(snapshot.base) ? "base" : "fetch";
}

/**
 * Removes the emptier of two random nodes. Two are enough for balance, and gateways that see the same old facts do not
 * all choose the same node, as they would with the emptiest of all
 */
function takeEmptier(request: ForkRequest, members: NodeFacts[], random: Random): NodeFacts | undefined {
  const one = Math.floor(random() * members.length);
  const other = (one + 1 + Math.floor(random() * (members.length - 1))) % members.length;
  const [a, b] = [members[one], members[other]];
  if (!a || !b) return undefined;
  const taken = fullness(b, request) < fullness(a, request) ? other : one;
  const node = members[taken];
  const last = members.pop();
  if (last && taken < members.length) members[taken] = last;
  return node;
}

/** A node for one more copy; null: all that could have one are crowded themselves, and a copy would not help */
function spreadOf(request: ForkRequest, others: readonly NodeFacts[], random: Random): string | null {
  const free = others.filter((node) => !node.fetching.has(request.snapshot.id) && fullness(node) < CROWDED);
  return takeEmptier(request, free, random)?.code ?? null;
}

function refusalOf(request: ForkRequest, nodes: readonly NodeFacts[], canFetch: boolean): Refused {
  const tooFew = (node: NodeFacts): Lack => ({ kind: "room", what: `has room for ${roomFor(request, node)} of ${request.count}` });
  return { lacks: nodes.map((node) => ({ node: node.code, lack: lackOf(request, node, canFetch) ?? tooFew(node) })) };
}
