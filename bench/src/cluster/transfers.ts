// Transfers of snapshots between simulated nodes, with limits for sender and receiver.

import { pick } from "./random.ts";
import { MODEL } from "./scenario.ts";

import type { Random, SnapshotFacts } from "@forkd/gateway/placement/facts";
import type { Agenda } from "./agenda.ts";
import type { SimNode } from "./node.ts";

/** Senders tried before the fetch waits */
const TRIES = 8;

export class Transfers {
  /** sent so far */
  miB = 0;
  readonly #agenda: Agenda;
  readonly #random: Random;
  readonly #holders = new Map<string, SimNode[]>();
  readonly #ever = new Map<string, Set<SimNode>>();
  #registrySending = 0;

  constructor(agenda: Agenda, random: Random) {
    this.#agenda = agenda;
    this.#random = random;
  }

  /** Nodes that ever held or received it: an old report may still list it */
  ever(id: string): Iterable<SimNode> {
    return this.#ever.get(id) ?? [];
  }

  /** A snapshot that a node has from the beginning */
  put(node: SimNode, snapshot: SnapshotFacts): void {
    node.store(snapshot, { isPinned: true }, () => {});
    this.#add(node, snapshot.id);
  }

  /** Calls back when the node has the snapshot. Each snapshot is fetched once, however many wait for it */
  fetch(node: SimNode, snapshot: SnapshotFacts, done: () => void = () => {}): void {
    const { id, diskMiB } = snapshot;
    if (node.has(id)) {
      done();
      return;
    }
    const waiting = node.waiting.get(id);
    if (waiting) {
      waiting.push(done);
      return;
    }
    node.waiting.set(id, [done]);
    this.#note(node, id);
    this.#receive(
      node,
      diskMiB,
      () => this.#sender(snapshot),
      () => {
        const all = node.waiting.get(id) ?? [];
        node.waiting.delete(id);
        node.store(snapshot, { isPinned: false }, (old) => this.#remove(node, old));
        this.#add(node, id);
        for (const one of all) one();
      },
    );
  }

  /** Pages of one sandbox from its node, or from its checkpoint in the registry when the node is dead */
  send(from: SimNode, to: SimNode, miB: number, done: () => void): void {
    const sender = (): SimNode | "registry" | null => (from.isAlive ? (from.sending < MODEL.sending ? from : null) : this.#registry());
    this.#receive(to, miB, sender, done);
  }

  #receive(node: SimNode, miB: number, sender: () => SimNode | "registry" | null, done: () => void): void {
    const { life } = node;
    const run = (): void => {
      if (life !== node.life) return;
      const from = sender();
      if (from === null) this.#agenda.in(MODEL.busyMs, run);
      else this.#transfer(node, from, miB, { done: end, again: run });
    };
    const end = (): void => {
      node.receiving--;
      done();
      const next = node.receiving < MODEL.receiving ? node.queue.shift() : undefined;
      if (next) next();
    };
    const begin = (): void => {
      node.receiving++;
      run();
    };
    if (node.receiving < MODEL.receiving) begin();
    else node.queue.push(begin);
  }

  #transfer(to: SimNode, from: SimNode | "registry", miB: number, then: { done: () => void; again: () => void }): void {
    const [toLife, fromLife] = [to.life, from === "registry" ? 0 : from.life];
    if (from === "registry") this.#registrySending++;
    else from.sending++;
    this.#agenda.in((miB / MODEL.transferMiBPerSec) * 1000, () => {
      const isBroken = from !== "registry" && from.life !== fromLife;
      if (from === "registry") this.#registrySending--;
      else if (!isBroken) from.sending--;
      if (to.life !== toLife) return;
      if (isBroken) {
        then.again();
        return;
      }
      this.miB += miB;
      then.done();
    });
  }

  #sender({ id, inRegistry }: SnapshotFacts): SimNode | "registry" | null {
    const holders = this.#holders.get(id) ?? [];
    for (let tries = 0; tries < TRIES && holders.length > 0; tries++) {
      const node = pick(this.#random, holders);
      if (node?.isAlive && node.sending < MODEL.sending) return node;
    }
    return inRegistry ? this.#registry() : null;
  }

  #registry(): "registry" | null {
    return this.#registrySending < MODEL.registrySending ? "registry" : null;
  }

  #note(node: SimNode, id: string): void {
    const nodes = this.#ever.get(id);
    if (nodes) nodes.add(node);
    else this.#ever.set(id, new Set([node]));
  }

  #add(node: SimNode, id: string): void {
    this.#note(node, id);
    const holders = this.#holders.get(id);
    if (holders) holders.push(node);
    else this.#holders.set(id, [node]);
  }

  #remove(node: SimNode, id: string): void {
    const holders = this.#holders.get(id) ?? [];
    const at = holders.indexOf(node);
    if (at >= 0) holders.splice(at, 1);
  }
}
