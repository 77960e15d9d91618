// Decides which nodes are asked for a fork, and in which order.

import { CROWDED, fullness } from "./fullness.ts";
import { lackOf, roomFor, type Lack } from "./lack.ts";

import type { ForkRequest, NodeFacts, Random } from "./facts.ts";

/**
 * Best first. "source": runs the live sandbox that is forked; "coming": is receiving the snapshot; "base": holds its base,
 * so that only the delta is fetched; "fetch": fetches all of it
 */
const TIERS = ["source", "warm", "disk", "coming", "base", "fetch"] as const;
export type Tier = (typeof TIERS)[number];

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

/** Nodes looked at for one that fetches the snapshot */
const SAMPLE = 32;
/** Candidates of a tier. When these refuse, the reports of the others are probably too old as well: the next tier is tried */
const PER_TIER = 3;
/** More of them until their room is so many times what the request needs, because some may refuse */
const SPARE_ROOM = 2;
/**
 * A snapshot has enough copies while so many, as a share of its holders, are on nodes that are not crowded, or on their
 * way. So the copies of a hot snapshot grow before its holders refuse, and faster the more there are
 */
const SPARE_COPIES = 0.25;

/**
 * The nodes to ask, or what each node lacks. A caller that keeps an index gives the nodes that may hold or receive the
 * snapshot or its base, and the source; without it all nodes are looked at, 0.2 ms for 1,000
 */
export function place(
  request: ForkRequest,
  nodes: readonly NodeFacts[],
  random: Random,
  opts: { holders?: readonly NodeFacts[] } = {},
): Placement | Refused {
  const { snapshot, sourceNode, count } = request;
  const near = nodesByTier(request, opts.holders ?? nodes);
  const canFetch = snapshot.inRegistry || sourceNode !== null || near.warm.length + near.disk.length > 0;
  const fits = (node: NodeFacts): boolean => lackOf(request, node, canFetch) === undefined;
  const isScarce = sourceNode === null && areCopiesScarce(near, (node) => lackOf(request, node, canFetch));
  const candidates: Candidate[] = [];
  let room = 0;
  const ask = (tier: Tier, members: NodeFacts[]): void => {
    for (let taken = 0; taken < PER_TIER || room < count * SPARE_ROOM; taken++) {
      const node = takeEmptier(request, members, random);
      if (!node) return;
      const takes = roomFor(request, node);
      candidates.push({ node: node.code, tier, room: takes });
      room += takes;
    }
  };
  for (const tier of TIERS) ask(tier, near[tier].filter(fits));
  const known = new Set(TIERS.flatMap((tier) => near[tier]));
  const isFar = (node: NodeFacts): boolean => !known.has(node);
  const far = new Set(someOf(nodes, random).filter((node) => fits(node) && isFar(node)));
  const spreadTo = isScarce ? spreadOf(request, [...far, ...near.base], random) : null;
  ask("fetch", [...far]);
  // a full cluster: look at each node before the request is refused
  if (room < count)
    ask(
      "fetch",
      nodes.filter((node) => fits(node) && isFar(node) && !far.has(node)),
    );
  return room < count ? refusalOf(request, nodes, canFetch) : { candidates, spreadTo };
}

/** The nodes that have to do with the snapshot; usually few, and all others are in the tier "fetch" */
function nodesByTier({ snapshot, sourceNode }: ForkRequest, nodes: readonly NodeFacts[]): Record<Tier, NodeFacts[]> {
  const { id, base } = snapshot;
  const tiers: Record<Tier, NodeFacts[]> = { source: [], warm: [], disk: [], coming: [], base: [], fetch: [] };
  for (const node of nodes) {
    const held = node.holds.get(id);
    if (node.code === sourceNode) tiers.source.push(node);
    // A start on a crowded node waits for longer than warmth saves.
    else if (held) tiers[held === "warm" && fullness(node) < CROWDED ? "warm" : "disk"].push(node);
    else if (node.fetching.size > 0 && node.fetching.has(id)) tiers.coming.push(node);
    else if (base !== null && node.holds.has(base)) tiers.base.push(node);
  }
  return tiers;
}

/** Whether too few copies are, or will be, where the request can go and the node is not crowded */
function areCopiesScarce(near: Record<Tier, NodeFacts[]>, lack: (node: NodeFacts) => Lack | undefined): boolean {
  const usable = (node: NodeFacts): boolean => (lack(node)?.kind ?? "room") === "room";
  const holders = [...near.warm, ...near.disk].filter(usable);
  const spare = holders.filter((node) => fullness(node) < CROWDED).length + near.coming.filter(usable).length;
  return spare < Math.ceil(holders.length * SPARE_COPIES);
}

/** Random nodes: with thousands, a look at all of them would not find a better one among two */
function someOf(nodes: readonly NodeFacts[], random: Random): readonly NodeFacts[] {
  if (nodes.length <= SAMPLE) return nodes;
  const drawn = Array.from({ length: SAMPLE }, () => nodes[Math.floor(random() * nodes.length)]);
  return drawn.filter((node) => node !== undefined);
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
  const free = others.filter((node) => fullness(node) < CROWDED && lackOf(request, node, true) === undefined);
  return takeEmptier(request, free, random)?.code ?? null;
}

function refusalOf(request: ForkRequest, nodes: readonly NodeFacts[], canFetch: boolean): Refused {
  const tooFew = (node: NodeFacts): Lack => ({ kind: "room", what: `has room for ${roomFor(request, node)} of ${request.count}` });
  return { lacks: nodes.map((node) => ({ node: node.code, lack: lackOf(request, node, canFetch) ?? tooFew(node) })) };
}
