// Forks of stored snapshots: chooses nodes, moves the snapshot where it is missing, and tries the next node after a refusal.

import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { lackOf } from "../placement/lack.ts";
import { place, type Candidate } from "../placement/place.ts";
import { refusalError } from "../placement/refusal.ts";
import { factsOf, snapshotFacts } from "../nodes/facts.ts";
import { respond } from "@forkd/daemon/dispatch/respond";
import { askerOf, ownerOf, projectOf, type Asked, type Cluster } from "./cluster.ts";
import { attempt, pass, refuseWith, type Refusal } from "./forward.ts";
import { holdersOf, listed } from "./tags.ts";
import type { SnapshotInfo } from "@forkd/daemon/api/snapshot";
import type { ForkRequest } from "../placement/facts.ts";
import { gatewayIn } from "../nodes/signer.ts";
import type { Node } from "../nodes/node.ts";
import type { Asker } from "../nodes/signer.ts";

/** Refusals that another node may not share */
const ELSEWHERE = new Set([
  "LIMIT_REACHED",
  "NO_SPACE",
  "BUSY",
  "STOPPING",
  "ISOLATION_UNAVAILABLE",
  "CONFINEMENT_UNAVAILABLE",
  "SNAPSHOT_INCOMPATIBLE",
  "HUGEPAGES_UNAVAILABLE",
  "NODE_UNREACHABLE",
]);

/** Nodes that are asked for a request with a key */
const MAX_KEYED = 4;

export type Fork = {
  tag: string;
  count: number;
  isolation: "kvm" | "any";
  /** the request, for a node */
  body: Buffer;
  /** the same for fewer children, where one node has no room for all; absent: the request cannot be divided */
  bodyFor?: ((count: number) => Buffer) | undefined;
  /** answer of all parts together */
  join?: ((parts: unknown[]) => { status: number; body: unknown }) | undefined;
  key?: string | undefined;
};

type Found = { info: SnapshotInfo; holder: Node };

/** Answers the request, by the node that takes it or with a refusal */
export async function placeFork(asked: Asked, fork: Fork): Promise<void> {
  const { cluster, exchange } = asked;
  const found = await snapshotOf(asked, fork.tag);
  if (!found) {
    // one that is being written, or none: a node says so
    const [holder] = await holdersOf(cluster, fork.tag, askerOf(exchange));
    await pass(exchange, cluster, holder ?? cluster.places.any(), { body: fork.body });
    return;
  }
  const { info, holder } = found;
  const snapshot = snapshotFacts(info, holder);
  const { count, isolation } = fork;
  const request: ForkRequest = { snapshot, count, isolation, allowedNodes: null, sourceNode: null };
  const more = { sandboxes: count, vcpus: count * info.vcpus, memory_mib: count * info.memory_mib, forks_per_minute: count };
  await cluster.quotas.run(projectOf(asked), more, async () => {
    if (fork.key === undefined) await forkAnywhere(asked, fork, request, found);
    else await forkByKey(asked, fork, fork.key, request, found);
  });
}

async function forkAnywhere(asked: Asked, fork: Fork, request: ForkRequest, found: Found): Promise<void> {
  const { cluster } = asked;
  const placement = place(request, factsOf(cluster.nodes.up), cluster.random);
  if (!("candidates" in placement)) throw refusalError(fork.tag, placement);
  if (placement.spreadTo !== null) spread(cluster, placement.spreadTo, found);
  const [first] = placement.candidates;
  if (first && first.room < fork.count && fork.bodyFor && fork.join) await divide(asked, fork, placement.candidates, found);
  else await tryEach(asked, fork, placement.candidates, found);
}

async function tryEach(asked: Asked, fork: Fork, candidates: readonly Candidate[], found: Found): Promise<void> {
  const { cluster, exchange } = asked;
  let refusal: Refusal | ForkdError | undefined;
  for (const { node: code } of candidates) {
    const node = cluster.nodes.byCode(code);
    if (!node) continue;
    try {
      await ensure(cluster, node, found);
      reserve(node, fork.count, found.info);
      const refused = await attempt(exchange, cluster, node, { body: fork.body });
      if (!refused) return;
      refusal = refused;
      if (!ELSEWHERE.has(refused.problem.code)) break;
    } catch (error) {
      // a connection that broke after the request was sent: the children may exist, and another node would make more
      if (!(error instanceof ForkdError) || exchange.signal.aborted || !ELSEWHERE.has(error.code) || wasSent(error)) throw error;
      refusal = error;
    }
  }
  await refuse(asked, fork, refusal);
}

/**
 * A repetition must reach the node of the first request. A node that refuses has stored nothing, so the next in the order
 * of the key is asked; one whose answer is missing may have, so no other is
 */
async function forkByKey(asked: Asked, fork: Fork, key: string, request: ForkRequest, found: Found): Promise<void> {
  const { cluster, exchange } = asked;
  const { id } = request.snapshot;
  const owner = ownerOf(asked);
  const fitting = factsOf(cluster.nodes.up).filter((facts) => lackOf(request, facts, true) === undefined);
  const holders = fitting.filter(({ holds }) => holds.has(id));
  const among = (holders.length > 0 ? holders : fitting).flatMap(({ code }) => cluster.nodes.byCode(code) ?? []);
  let refusal: Refusal | undefined;
  for (const node of cluster.keyed.order(owner, key, among.length > 0 ? among : [found.holder]).slice(0, MAX_KEYED)) {
    await ensure(cluster, cluster.places.reachable(node), found);
    reserve(node, fork.count, found.info);
    cluster.keyed.keep(owner, key, node);
    const refused = await attempt(exchange, cluster, node, { body: fork.body });
    if (!refused) return;
    cluster.keyed.forget(owner, key);
    refusal = refused;
    if (!ELSEWHERE.has(refused.problem.code)) break;
  }
  await refuse(asked, fork, refusal);
}

/** Children on several nodes, all or none */
async function divide(asked: Asked, fork: Fork, candidates: readonly Candidate[], found: Found): Promise<void> {
  const { cluster, exchange } = asked;
  const { bodyFor, join } = fork;
  if (!bodyFor || !join) return;
  const as = askerOf(exchange);
  const made: { node: Node; body: unknown }[] = [];
  let open = fork.count;
  let refusal: Refusal | ForkdError | undefined;
  for (const { node: code, room } of candidates) {
    const node = cluster.nodes.byCode(code);
    if (!node || open === 0) continue;
    const count = Math.min(open, room);
    try {
      if (made.length > 0) await cluster.quotas.refresh(projectOf(asked));
      await ensure(cluster, node, found);
      reserve(node, count, found.info);
      const reply = await node.ask("POST", "/v1/sandboxes", { as, body: bodyFor(count), signal: exchange.signal, timeoutMs: 600_000 });
      if (reply.status < 300) {
        made.push({ node, body: reply.body });
        open -= count;
      } else refusal = { status: reply.status, problem: reply.body as Refusal["problem"], headers: {} };
    } catch (error) {
      if (!(error instanceof ForkdError)) throw error;
      refusal = error;
    }
  }
  if (open === 0) {
    await respond(exchange, join(made.map(({ body }) => body)));
    return;
  }
  await Promise.all(made.flatMap(({ node, body }) => idsIn(body).map(async (id) => end(asked, node, id))));
  await refuse(asked, fork, refusal);
}

async function refuse({ exchange }: Asked, fork: Fork, refusal: Refusal | ForkdError | undefined): Promise<void> {
  if (refusal instanceof ForkdError) throw refusal;
  if (!refusal) throw new ForkdError("LIMIT_REACHED", `Cannot fork ${fork.tag}: no node of the cluster can take it.`);
  await refuseWith(exchange, refusal);
}

/** The snapshot and a node that has it; undefined: it is not in the lists, also after they were read again */
async function snapshotOf({ cluster, exchange }: Asked, tag: string): Promise<Found | undefined> {
  const as = askerOf(exchange);
  const known = inLists(cluster, tag, as);
  if (known) return known;
  const nodes = await holdersOf(cluster, tag, as);
  await Promise.all(nodes.map(async (node) => cluster.nodes.refresh(node)));
  return inLists(cluster, tag, as);
}

/** Nodes of older stores may have different snapshots under one tag: the registered one counts, then the oldest */
function inLists({ nodes }: Cluster, tag: string, as: Asker): Found | undefined {
  const found = nodes.up.flatMap((holder) => {
    const info = listed(holder, tag, as);
    return info?.status === "ready" ? [{ info, holder }] : [];
  });
  return found.toSorted((a, b) => a.info.created_at_unix - b.info.created_at_unix || (a.info.id < b.info.id ? -1 : 1))[0];
}

async function ensure(cluster: Cluster, node: Node, { info, holder }: Found): Promise<void> {
  if (!node.snapshots.has(info.id)) await cluster.transfers.move(info.id, holder, node);
}

function spread(cluster: Cluster, code: string, { info, holder }: Found): void {
  const node = cluster.nodes.byCode(code);
  if (!node || node.fetching.has(info.id)) return;
  cluster.transfers.move(info.id, holder, node).catch((error: unknown) => {
    cluster.log.warn({ snapshot: info.id, node: code, problem: messageOf(error) }, "a snapshot could not be moved in advance");
  });
}

/** Counts children until the node's next report */
function reserve(node: Node, count: number, { memory_mib: memoryMiB }: SnapshotInfo): void {
  node.sent = { count: node.sent.count + count, memoryMiB: node.sent.memoryMiB + count * memoryMiB };
}

function wasSent({ cause }: ForkdError): boolean {
  const { code, syscall } = (cause ?? {}) as NodeJS.ErrnoException;
  return cause !== undefined && !(code === "ECONNREFUSED" || syscall === "connect");
}

function idsIn(body: unknown): string[] {
  const list = Array.isArray(body) ? body : ((body as { results?: { sandbox?: unknown }[] }).results ?? []).map(({ sandbox }) => sandbox);
  return list.flatMap((info) => (typeof (info as { id?: unknown } | undefined)?.id === "string" ? [(info as { id: string }).id] : []));
}

async function end(asked: Asked, node: Node, id: string): Promise<void> {
  const { cluster } = asked;
  try {
    await node.ask("DELETE", `/v1/sandboxes/${id}`, { as: gatewayIn(projectOf(asked)) });
  } catch (error) {
    cluster.log.warn({ sandbox: id, node: node.label, problem: messageOf(error) }, "a sandbox of a failed request could not be ended");
  }
}
