// Moves without a request: of the sandboxes of a daemon that is about to end, or whose machine is to be drained, and of what a
// gateway left half moved when it died.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { drain } from "./drain.ts";
import { EVERYWHERE } from "../nodes/signer.ts";
import { step } from "../nodes/steps.ts";
import type { Problem } from "@forkd/daemon/api/common";
import type { Node } from "../nodes/node.ts";
import type { Cluster } from "./cluster.ts";

const TURN_MS = 500;
/** Well below the time after which a claim is lost */
const CLAIM_MS = 3000;
/** Between two looks at a node, doubled while no node takes what is left: each attempt suspends and resumes it */
const AGAIN_MS = 2000;
const AGAIN_MOST_MS = 60_000;
const PENDING_MS = 30_000;
/** The gateway that moves it may still be at work */
const SETTLE_AFTER_SECS = 30;
const DROP_AFTER_SECS = 24 * 3600;

type Arriving = { id: string; from: string; at: number };
type Parts = Pick<Cluster, "nodes" | "transfers" | "tokens" | "quotas" | "places" | "log" | "random">;

export class Leaving implements AsyncDisposable {
  readonly #cluster: Parts;
  /** of this gateway, for claims */
  readonly #name = randomUUID();
  readonly #closing = new AbortController();
  readonly #running = new Map<Node, Promise<void>>();
  readonly #pauses = new WeakMap<Node, number>();
  readonly #turns: NodeJS.Timeout;
  readonly #checks: NodeJS.Timeout;

  constructor(cluster: Parts, { pendingMs = PENDING_MS }: { pendingMs?: number } = {}) {
    this.#cluster = cluster;
    this.#turns = setInterval(() => this.#takeTurn(), TURN_MS);
    this.#checks = setInterval(() => void this.#settlePending(), pendingMs);
  }

  /** Moves that are under way end; another gateway continues with the rest */
  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#turns);
    clearInterval(this.#checks);
    this.#closing.abort();
    await Promise.all(this.#running.values());
  }

  /** States that a node has received, and whose gateway did not end the move */
  async #settlePending(): Promise<void> {
    const { nodes, log } = this.#cluster;
    for (const node of nodes.up) {
      try {
        const { arriving = [] } = await step<{ arriving?: Arriving[] }>(node, { step: "pending", id: "" });
        for (const one of arriving) await this.#settle(node, one);
      } catch (error) {
        log.info({ node: node.label, problem: messageOf(error) }, "interrupted moves could not be looked up");
      }
    }
  }

  #takeTurn(): void {
    for (const node of this.#cluster.nodes.up) {
      if ((node.status?.leaving !== true && !node.mustDrain) || this.#running.has(node)) continue;
      const work = this.#empty(node)
        .catch((error: unknown) => this.#cluster.log.warn({ node: node.label, problem: messageOf(error) }, "a node could not be emptied"))
        .finally(() => this.#running.delete(node));
      this.#running.set(node, work);
    }
  }

  async #empty(node: Node): Promise<void> {
    if (!(await this.#claims(node))) return;
    const over = new AbortController();
    const signal = AbortSignal.any([over.signal, this.#closing.signal, node.closed]);
    const claiming = setInterval(() => {
      this.#claims(node).then(
        (isOurs) => isOurs || over.abort(new ForkdError("BUSY", "Another gateway moves this.")),
        () => undefined, // the daemon has ended, and the drain notices that
      );
    }, CLAIM_MS);
    try {
      // what is suspended outlives the daemon, but is out of reach without its machine
      const { moved, left } = await drain(this.#cluster, node, signal, { onlyRunning: !node.mustDrain });
      if (moved.length + left.length > 0)
        this.#cluster.log.info({ node: node.label, moved: moved.length, left: left.length }, "a node was emptied");
      // a place may become free elsewhere, and a fork that was under way come later
      const pause = left.length === 0 ? AGAIN_MS : Math.min(AGAIN_MOST_MS, 2 * (this.#pauses.get(node) ?? AGAIN_MS));
      this.#pauses.set(node, pause);
      await sleep(pause, undefined, { signal }).catch(() => undefined); // closed
    } finally {
      clearInterval(claiming);
    }
  }

  async #claims(node: Node): Promise<boolean> {
    return (await step<{ is_yours: boolean }>(node, { step: "claim", id: this.#name })).is_yours;
  }

  /** Only the node that had it knows whose it is */
  async #settle(node: Node, { id, from: code, at }: Arriving): Promise<void> {
    const { nodes, places, log } = this.#cluster;
    const from = nodes.byCode(code);
    const age = Date.now() / 1000 - at;
    if (!from?.isUp || age < SETTLE_AFTER_SECS) return;
    const { status, body } = await from.ask("GET", `/v1/sandboxes/${id}`, { as: EVERYWHERE });
    const { code: refusal, details } = body as Partial<Problem>;
    const owner = refusal === "SANDBOX_MOVED" ? details?.["node"] : undefined;
    if (owner === node.code) {
      await step(node, { step: "settle", id });
      places.note(id, node);
      log.info({ sandbox: id, from: code, to: node.label }, "an interrupted move was ended");
    } else if (owner !== undefined || (status < 500 && age > DROP_AFTER_SECS)) await step(node, { step: "drop", id });
  }
}
