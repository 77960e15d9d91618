// Keeps snapshots where WarmSnapshots want them, and writes into their status where they are. One gateway does this at a
// time, the one that holds the Lease.

import { isDeepStrictEqual } from "node:util";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { DEFAULT_PROJECT, storedName } from "@forkd/daemon/store/project-names";
import { gatewayIn } from "../nodes/signer.ts";
import { planFor, type Machine } from "./warm-plan.ts";
import { byTag, GROUP, keyOf, makerOf, RESOURCE, type NodeState, type WarmSnapshot, type WarmStatus } from "./warm-snapshot.ts";

import type { Problem } from "@forkd/daemon/api/common";
import type { Node } from "../nodes/node.ts";
import type { Log, Nodes } from "../nodes/nodes.ts";
import type { Transfers } from "../nodes/transfers.ts";
import type { ClusterProjects } from "../state/projects.ts";
import type { KubernetesApi } from "./api.ts";
import type { Cache } from "./cache.ts";
import type { Lease } from "./lease.ts";

const TURN_MS = 1000;
/** A daemon that restarts is back by then; its snapshots are not fetched elsewhere meanwhile */
const AWAY_MS = 120_000;
/** After a failure the machine is left alone for so long */
const RETRY_MS = 30_000;
const PULL_MS = 30 * 60_000;
/** Its copy is not one of the wanted ones */
const CORDONED = "the machine is cordoned";
/** Of a message in the status */
const MAX_CHARS = 500;

export type KeeperParts = {
  api: KubernetesApi;
  objects: Cache<WarmSnapshot>;
  lease: Lease;
  nodes: Nodes;
  transfers: Transfers;
  projects: ClusterProjects;
  /** VMMs that others want to wait for a tag, beside those of its object */
  poolFor: (project: string, tag: string) => number;
  log: Log;
};

export class WarmKeeper implements AsyncDisposable {
  readonly #parts: KeeperParts;
  /** work of a machine for one object */
  readonly #running = new Map<string, Promise<void>>();
  readonly #failures = new Map<string, { atMs: number; message: string }>();
  /** snapshots that sources turned out to be, by object, until the status says it */
  readonly #resolved = new Map<string, { source: string; snapshot: string }>();
  readonly #timer: NodeJS.Timeout;
  #turn: Promise<void> | null = null;

  constructor(parts: KeeperParts) {
    this.#parts = parts;
    this.#timer = setInterval(() => {
      this.#turn ??= this.#takeTurn().finally(() => (this.#turn = null));
    }, TURN_MS);
  }

  /** Transfers that run continue; another gateway finds their result */
  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#turn;
  }

  async #takeTurn(): Promise<void> {
    const { objects, lease, log } = this.#parts;
    for (const [key, { atMs }] of this.#failures) if (atMs < Date.now() - RETRY_MS) this.#failures.delete(key);
    const names = new Set(objects.list().map(({ metadata }) => metadata.name));
    for (const name of this.#resolved.keys()) if (!names.has(name)) this.#resolved.delete(name);
    for (const object of byTag(objects.list()).values()) {
      if (!lease.isHeld) return;
      try {
        await this.#keep(object);
      } catch (error) {
        if (!(error instanceof ForkdError)) throw error;
        log.warn({ tag: keyOf(object), problem: error.message }, "the status of a WarmSnapshot was not written");
      }
    }
  }

  async #keep(object: WarmSnapshot): Promise<void> {
    const { nodes } = this.#parts;
    const id = this.#snapshotOf(object);
    const machines = nodes.all.map((node) => this.#machine(object, node, id));
    const { project, tag } = object.spec;
    const pool = object.spec.pool + this.#parts.poolFor(project, tag);
    const plan = planFor({ ...object.spec, pool }, keyOf(object), machines);
    const find = (name: string): Node[] => nodes.all.filter((node) => node.machine === name);
    // The first machine finds out which snapshot the source is; the others get it from that one.
    const isFirst = id === undefined;
    const fetching = isFirst && machines.some(({ isFetching }) => isFetching) ? [] : plan.fetch.slice(0, isFirst ? 1 : undefined);
    for (const node of fetching.flatMap(find)) this.#start(object, node, async () => this.#fetch(object, node, id));
    if (id !== undefined) {
      for (const node of plan.pool.flatMap(find)) this.#start(object, node, async () => this.#ask(node, "PATCH", id, { pool }));
      for (const node of plan.drop.flatMap(find)) this.#start(object, node, async () => this.#ask(node, "DELETE", id));
    }
    await this.#report(object, id, machines);
  }

  /** Id of the snapshot; undefined: the source was not fetched yet, or its maker does not answer */
  #snapshotOf(object: WarmSnapshot): string | undefined {
    const { spec, status, metadata } = object;
    const maker = makerOf(object);
    const known = [status, this.#resolved.get(metadata.name)].find((one) => one?.source === spec.source);
    return (maker === null ? undefined : this.#parts.nodes.byCode(maker)?.tags.get(storedName(spec.tag, spec.project))) ?? known?.snapshot;
  }

  #machine(object: WarmSnapshot, node: Node, id: string | undefined): Machine {
    const key = workKey(object, node);
    const info = id === undefined ? undefined : node.snapshots.get(id);
    const isRecent = node.isUp || (node.lastSeenMs !== null && Date.now() - node.lastSeenMs < AWAY_MS);
    return {
      name: node.machine,
      // one that is about to end is back soon, as after any restart: its snapshots are not fetched elsewhere meanwhile
      isUp: node.isUp && node.status?.leaving !== true,
      isCordoned: node.status?.cordoned === true && !node.status.leaving,
      holds: info !== undefined && isRecent,
      isFetching: this.#running.has(key) || (id !== undefined && node.fetching.has(id)),
      hasFailed: this.#failures.has(key),
      pool: info?.pool ?? 0,
    };
  }

  #start(object: WarmSnapshot, node: Node, work: () => Promise<void>): void {
    const key = workKey(object, node);
    if (this.#running.has(key)) return;
    const done = work()
      .then(() => void this.#failures.delete(key))
      .catch((error: unknown) => {
        this.#failures.set(key, { atMs: Date.now(), message: messageOf(error).slice(0, MAX_CHARS) });
        this.#parts.log.warn(
          { tag: keyOf(object), node: node.label, problem: messageOf(error) },
          "a WarmSnapshot is not where it should be",
        );
      })
      .finally(() => void this.#running.delete(key));
    this.#running.set(key, done);
  }

  async #fetch(object: WarmSnapshot, to: Node, id: string | undefined): Promise<void> {
    const { nodes, transfers, projects } = this.#parts;
    const holder = id === undefined ? undefined : nodes.up.find((node) => node !== to && node.snapshots.has(id));
    if (id !== undefined && holder) {
      await transfers.move(id, holder, to);
      return;
    }
    const { source, tag, project } = object.spec;
    // a node takes every project that a gateway names
    projects.get(project);
    if (makerOf(object) !== null) throw new ForkdError("NOT_FOUND", `Cannot fetch snapshot ${tag}: no node that answers has it.`);
    const body = Buffer.from(JSON.stringify({ from: source, tag, force: true }));
    const reply = await to.ask("POST", "/v1/snapshots/pull", { as: gatewayIn(project), body, timeoutMs: PULL_MS });
    if (reply.status !== 201) throw refusal(to, reply.body);
    const { snapshot } = reply.body as { snapshot: { id: string } };
    this.#resolved.set(object.metadata.name, { source, snapshot: snapshot.id });
    await nodes.refresh(to);
  }

  async #ask(node: Node, method: "PATCH" | "DELETE", id: string, body?: object): Promise<void> {
    const { tag = id, project = DEFAULT_PROJECT } = node.snapshots.get(id) ?? {};
    const sent = body === undefined ? {} : { body: Buffer.from(JSON.stringify(body)) };
    const reply = await node.ask(method, `/v1/snapshots/${encodeURIComponent(tag)}`, { as: gatewayIn(project), ...sent });
    if (reply.status > 299) throw refusal(node, reply.body);
    await this.#parts.nodes.refresh(node);
  }

  /** Writes the status only if it differs: each write wakes all gateways */
  async #report(object: WarmSnapshot, id: string | undefined, machines: readonly Machine[]): Promise<void> {
    const { api, nodes } = this.#parts;
    const states = machines.flatMap((machine): NodeState[] => {
      const { name, holds, isFetching } = machine;
      const node = nodes.all.find((one) => one.machine === name);
      const failure = node && this.#failures.get(workKey(object, node));
      if (failure) return [{ name, state: "Failed", message: failure.message }];
      if (holds && machine.isUp) return [{ name, state: "Ready", ...(machine.isCordoned ? { message: CORDONED } : {}) }];
      return isFetching ? [{ name, state: "Fetching" }] : [];
    });
    const status: WarmStatus = {
      observedGeneration: object.metadata.generation ?? 0,
      ready: states.filter(({ state, message }) => state === "Ready" && message !== CORDONED).length,
      nodes: states.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
      ...(id === undefined ? {} : { source: object.spec.source, snapshot: id }),
    };
    if (isDeepStrictEqual({ ...object.status }, status)) return;
    const path = `${api.path(GROUP, RESOURCE)}/${object.metadata.name}/status`;
    // A conflict means that the object has changed: the next turn sees it.
    await api.request("PUT", path, { ...object, status });
  }
}

function workKey({ metadata }: WarmSnapshot, node: Node): string {
  return `${metadata.uid ?? metadata.name} ${metadata.generation ?? 0} ${node.machine}`;
}

function refusal(node: Node, body: unknown): ForkdError {
  const { error = "it gave no reason" } = (body ?? {}) as Partial<Problem>;
  return new ForkdError("NODE_UNREACHABLE", `Node ${node.label} refuses: ${error}`);
}
