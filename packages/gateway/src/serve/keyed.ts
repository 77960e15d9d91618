// Idempotency keys: a repetition must reach the node of the first request. Nodes are asked in the order of a hash of owner,
// key and node, and the node that took the request is kept, because the set of nodes can change before the repetition.

import { createHash } from "node:crypto";
import type { Node } from "../nodes/node.ts";

const KEEP_MS = 3600 * 1000;
const MAX_KEPT = 100_000;

export class KeyedNodes {
  readonly #kept = new Map<string, { node: Node; untilMs: number }>();

  /** The node that took a request with this key through this gateway, or may have taken it */
  known(owner: string, key: string): Node | undefined {
    const kept = this.#kept.get(nameOf(owner, key));
    return kept && kept.untilMs > Date.now() ? kept.node : undefined;
  }

  keep(owner: string, key: string, node: Node): void {
    const name = nameOf(owner, key);
    this.#kept.delete(name);
    this.#kept.set(name, { node, untilMs: Date.now() + KEEP_MS });
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= MAX_KEPT) break;
      this.#kept.delete(oldest);
    }
  }

  /** The node has refused, so that it stores no answer */
  forget(owner: string, key: string): void {
    this.#kept.delete(nameOf(owner, key));
  }

  /**
   * The nodes to ask, in order
   * @param owner of the key: keys of different owners are independent
   */
  order(owner: string, key: string, among: readonly Node[]): Node[] {
    const known = this.known(owner, key);
    return known ? [known] : inOrder(nameOf(owner, key), among);
  }
}

/** The node with the highest hash: a node that joins or leaves changes the choice only for its own keys */
export function rendezvous(key: string, among: readonly Node[]): Node | undefined {
  return inOrder(key, among)[0];
}

function inOrder(key: string, among: readonly Node[]): Node[] {
  const weighed = among.map((node) => ({ node, weight: createHash("sha256").update(`${key}\n${node.label}`).digest("hex") }));
  return weighed.toSorted((a, b) => (a.weight > b.weight ? -1 : 1)).map(({ node }) => node);
}

function nameOf(owner: string, key: string): string {
  return `${owner}\n${key}`;
}
