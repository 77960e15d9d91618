// Idempotency keys: a repetition must reach the node of the first request. The node is chosen by a hash of project and
// key among the nodes that can take the request; the choice is kept, because that set can change before the repetition.

import { createHash } from "node:crypto";
import type { Node } from "../nodes/node.ts";

const KEEP_MS = 3600 * 1000;
const MAX_KEPT = 100_000;

export class KeyedNodes {
  readonly #kept = new Map<string, { node: Node; untilMs: number }>();

  /** @param owner of the key: keys of different owners are independent */
  nodeOf(owner: string, key: string, among: readonly Node[]): Node | undefined {
    const name = `${owner}\n${key}`;
    const kept = this.#kept.get(name);
    if (kept && kept.untilMs > Date.now()) return kept.node;
    const chosen = rendezvous(name, among);
    if (!chosen) return undefined;
    this.#kept.delete(name);
    this.#kept.set(name, { node: chosen, untilMs: Date.now() + KEEP_MS });
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= MAX_KEPT) break;
      this.#kept.delete(oldest);
    }
    return chosen;
  }
}

/** The node with the highest hash: a node that joins or leaves changes the choice only for its own keys */
export function rendezvous(key: string, among: readonly Node[]): Node | undefined {
  let best: { node: Node; weight: string } | undefined;
  for (const node of among) {
    const weight = createHash("sha256").update(`${key}\n${node.label}`).digest("hex");
    if (!best || weight > best.weight) best = { node, weight };
  }
  return best?.node;
}
