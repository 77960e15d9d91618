// Drain of a node: each of its sandboxes is suspended, its state goes to another node, and it runs on there with its id.

import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { Semaphore } from "@forkd/runtime/util/semaphore";
import { shownName } from "@forkd/daemon/store/project-names";
import { place } from "../placement/place.ts";
import { refusalError } from "../placement/refusal.ts";
import { factsOf, stateFacts } from "../nodes/facts.ts";
import { EVERYWHERE } from "../nodes/signer.ts";
import { refusalOf, step } from "../nodes/steps.ts";
import type { Drained } from "@forkd/daemon/api/cluster";
import type { SandboxInfo } from "@forkd/daemon/api/sandbox";
import type { WorkspaceInfo } from "@forkd/daemon/api/workspace";
import type { Arrival, Departure } from "@forkd/daemon/service/moves";
import type { NodeFacts } from "../placement/facts.ts";
import type { Node } from "../nodes/node.ts";
import type { Cluster } from "./cluster.ts";

/** A node refuses more captures of one project at once */
const AT_ONCE = 3;
const BUSY_TRIES = 20;
const BUSY_MS = 500;
/** Forks that were under way when the node was cordoned come later */
const ROUNDS = 3;

/** `memoryMiB` null: a workspace, whose state is on the disk */
type Thing = { id: string; name: string | null; snapshot: string; memoryMiB: number; isAsleep: boolean };
type Moved = Drained["moved"][number];
type Parts = Pick<Cluster, "nodes" | "transfers" | "tokens" | "quotas" | "places" | "log" | "random">;

/**
 * Of a node that takes no forks. What cannot be moved stays as it was. A repetition continues
 * @param opts.onlyRunning leaves what is suspended, which outlives the daemon
 */
export async function drain(cluster: Parts, from: Node, signal: AbortSignal, opts: { onlyRunning?: boolean } = {}): Promise<Drained> {
  const moved: Moved[] = [];
  const left = new Map<string, Drained["left"][number]>();
  const turns = new Semaphore(AT_ONCE);
  const one = async ({ id, name, ...thing }: Thing): Promise<void> => {
    try {
      signal.throwIfAborted();
      moved.push({ id, name, ...(await move(cluster, from, { id, name, ...thing })) });
    } catch (error) {
      const code = error instanceof ForkdError ? error.code : "INTERNAL";
      left.set(id, { id, name, code, problem: messageOf(error) });
      cluster.log.warn({ sandbox: id, node: from.label, err: error }, "a sandbox could not be moved");
    }
  };
  for (let round = 0; round < ROUNDS; round++) {
    const open = (await thingsOf(from)).filter(({ id, isAsleep }) => !left.has(id) && !(opts.onlyRunning && isAsleep));
    if (open.length === 0) break;
    await Promise.all(open.map(async (thing) => turns.run(async () => one(thing))));
  }
  return { node: from.label, moved, left: [...left.values()] };
}

async function thingsOf(node: Node): Promise<Thing[]> {
  const sandboxes = await listOf<SandboxInfo>(node, "/v1/sandboxes");
  const workspaces = await listOf<WorkspaceInfo>(node, "/v1/workspaces");
  return [
    ...sandboxes.map(({ id, name, snapshot_id: snapshot, memory_mib: memoryMiB, state }) => {
      return { id, name, snapshot, memoryMiB, isAsleep: state === "suspended" };
    }),
    ...workspaces
      .filter(({ status }) => status === "suspended")
      .map(({ id, name }) => ({ id, name, snapshot: "", memoryMiB: 0, isAsleep: true })),
  ];
}

async function listOf<V>(node: Node, path: string): Promise<V[]> {
  const reply = await node.ask("GET", path, { as: EVERYWHERE });
  if (reply.status !== 200) throw refusalOf(reply);
  return reply.body as V[];
}

async function move(cluster: Parts, from: Node, thing: Thing): Promise<Omit<Moved, "id" | "name">> {
  const { id } = thing;
  // before it is suspended: a sandbox that no node can take runs on
  const candidates = candidatesFor(cluster, from, thing);
  // also before: it is large, and requests wait while the sandbox is suspended
  if (candidates[0]) await shareBase(cluster, from, candidates[0], [thing.snapshot]);
  const departure = await whileBusy(async () => step<Departure>(from, { step: "depart", id }));
  const problems: string[] = [];
  let last: unknown;
  for (const to of candidates) {
    try {
      await send(cluster, from, to, departure);
    } catch (error) {
      last = error;
      problems.push(`${to.label}: ${messageOf(error)}`);
      await forget(cluster, to, id);
      continue;
    }
    await leave(cluster, from, to, id);
    cluster.places.note(id, to);
    return { to: to.code ?? "", ...(await settle(cluster, to, departure)) };
  }
  await step(from, { step: "stay", id });
  throw new ForkdError(last instanceof ForkdError ? last.code : "LIMIT_REACHED", `Cannot move ${id}: ${problems.join("; ")}`);
}

function candidatesFor({ nodes, random }: Parts, from: Node, { id, snapshot, memoryMiB, isAsleep }: Thing): Node[] {
  const others = factsOf(nodes.up.filter((node) => node !== from)).map((facts) => (isAsleep ? withRoom(facts) : facts));
  const state = stateFacts({ id, base: snapshot, memoryMiB }, from);
  const request = { snapshot: state, count: 1, isolation: "any" as const, allowedNodes: null, sourceNode: from.code };
  const placement = place(request, others, random);
  if (!("candidates" in placement)) throw refusalError(id, placement);
  const found = placement.candidates.flatMap(({ node }) => nodes.byCode(node) ?? []);
  const [first] = found;
  if (first && !isAsleep) first.sent = { count: first.sent.count + 1, memoryMiB: first.sent.memoryMiB + memoryMiB };
  return found;
}

/** A suspended sandbox needs neither a place nor memory */
function withRoom(facts: NodeFacts): NodeFacts {
  return { ...facts, places: { used: 0, max: 1 }, memory: { freeMiB: facts.memory.totalMiB, totalMiB: facts.memory.totalMiB } };
}

/** Resolves when the other node has the whole state on its disk */
async function send(cluster: Parts, from: Node, to: Node, departure: Departure): Promise<void> {
  const { id, project, snapshot, chain, sandbox } = departure;
  const known = sandbox && cluster.tokens.ofPrincipal(sandbox.created_by);
  const maker = known
    ? { name: known.principal, stamp: known.stamp, since: known.sinceMs, max_sandboxes: known.info.max_sandboxes }
    : undefined;
  await shareBase(cluster, from, to, chain);
  const { has } = await step<{ has: string[] }>(to, { step: "reserve", id, record: { ...departure, ...(maker ? { maker } : {}) } });
  const named = { project, tag: shownName(snapshot.tag, project), has };
  await cluster.transfers.move(snapshot.id, from, to, named);
  await step(to, { step: "arrive", id });
}

/** From here on the other node has it. A missing answer leaves open which one: nothing is taken back, and the next request finds it */
async function leave(cluster: Parts, from: Node, to: Node, id: string): Promise<void> {
  try {
    await step(from, { step: "leave", id, to: to.code ?? "" });
  } catch (error) {
    if (error instanceof ForkdError && error.code !== "NODE_UNREACHABLE") await forget(cluster, to, id);
    throw error;
  }
}

/** A snapshot that several sandboxes build on is sent once, and then only what each has changed */
async function shareBase(cluster: Parts, from: Node, to: Node, chain: readonly string[]): Promise<void> {
  const base = chain.find((id) => {
    const info = from.snapshots.get(id);
    return info?.status === "ready" && !info.ephemeral;
  });
  if (base === undefined || to.snapshots.has(base)) return;
  try {
    await cluster.transfers.move(base, from, to);
  } catch (error) {
    // its tag may be taken there; then each state brings it along
    cluster.log.info({ snapshot: base, from: from.label, to: to.label, problem: messageOf(error) }, "a base could not be moved");
  }
}

async function settle(cluster: Parts, to: Node, { id, project }: Departure): Promise<Pick<Moved, "state" | "problem">> {
  try {
    // the first learns that the old node no longer counts it, and the second states that to the new node
    await cluster.quotas.refresh(project);
    await cluster.quotas.refresh(project);
    const { state, problem } = await step<Arrival>(to, { step: "settle", id });
    return { state, problem };
  } catch (error) {
    if (!(error instanceof ForkdError)) throw error;
    return { state: "suspended", problem: error.message };
  }
}

async function forget({ log }: Parts, to: Node, id: string): Promise<void> {
  try {
    await step(to, { step: "drop", id });
  } catch (error) {
    log.warn({ sandbox: id, node: to.label, problem: messageOf(error) }, "a state that was not needed could not be removed");
  }
}

/** Other captures of the project are under way */
async function whileBusy<V>(work: () => Promise<V>): Promise<V> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ForkdError) || error.code !== "BUSY" || tries === BUSY_TRIES) throw error;
      await new Promise((resolve) => void setTimeout(resolve, BUSY_MS));
    }
  }
}
