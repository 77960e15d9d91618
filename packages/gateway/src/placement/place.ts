// Decides which nodes are asked for a fork, and in which order.

import { CROWDED, fullness } from "./fullness.ts";
import { lackOf, roomFor, type Lack } from "./lack.ts";

import type { ForkRequest, NodeFacts, Random } from "./facts.ts";

/** Best first. "base": holds the snapshot's base, so that only the delta is fetched; "fetch": fetches all of it */
export const TIERS = ["source", "warm", "disk", "base", "fetch"] as const;
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

/** Candidates to try before the request fails, if these have room for all children */
const CANDIDATES = 8;
/** Part of a snapshot's holders that is to be free of crowding or on the way, so that copies grow before they are needed */
const SPARE_HOLDERS = 0.25;

/** The nodes to ask, or what each node lacks */
export function place(request: ForkRequest, nodes: readonly NodeFacts[], random: Random): Placement | Refused {
  const { snapshot, sourceNode, count } = request;
  const canFetch = snapshot.inRegistry || sourceNode !== null || nodes.some(({ holds }) => holds.has(snapshot.id));
  const fitting = nodes.filter((node) => lackOf(request, node, canFetch) === undefined);
  if (sum(fitting.map((node) => roomFor(request, node))) < count) return refusalOf(request, nodes, canFetch);
  const tiers = new Map<Tier, NodeFacts[]>(TIERS.map((tier) => [tier, []]));
  for (const node of fitting) tiers.get(tierOf(request, node))?.push(node);
  const candidates: Candidate[] = [];
  let open = count;
  for (const [tier, members] of tiers)
    while (members.length > 0 && (candidates.length < CANDIDATES || open > 0)) {
      const node = takeEmptier(request, members, random);
      if (!node) break;
      const room = roomFor(request, node);
      candidates.push({ node: node.code, tier, room });
      open -= room;
    }
  return { candidates, spreadTo: sourceNode === null ? spreadOf(request, nodes, canFetch, random) : null };
}

function tierOf({ snapshot, sourceNode }: ForkRequest, node: NodeFacts): Tier {
  if (node.code === sourceNode) return "source";
  const held = node.holds.get(snapshot.id);
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

/** A node for one more copy, when too few holders are free of crowding and there is a node that is */
function spreadOf(request: ForkRequest, nodes: readonly NodeFacts[], canFetch: boolean, random: Random): string | null {
  const { id } = request.snapshot;
  let [holders, spare] = [0, 0];
  const others: NodeFacts[] = [];
  for (const node of nodes)
    if (node.fetching.has(id)) spare++;
    else if (node.holds.has(id)) {
      if (node.cordoned) continue;
      holders++;
      if (fullness(node) < CROWDED) spare++;
    } else others.push(node);
  if (spare >= Math.max(1, Math.ceil(holders * SPARE_HOLDERS))) return null;
  const free = others.filter((node) => fullness(node) < CROWDED && lackOf(request, node, canFetch) === undefined);
  return takeEmptier(request, free, random)?.code ?? null;
}

function refusalOf(request: ForkRequest, nodes: readonly NodeFacts[], canFetch: boolean): Refused {
  const tooFew = (node: NodeFacts): Lack => ({ kind: "room", what: `has room for ${roomFor(request, node)} of ${request.count}` });
  return { lacks: nodes.map((node) => ({ node: node.code, lack: lackOf(request, node, canFetch) ?? tooFew(node) })) };
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}
