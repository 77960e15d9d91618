// Keeps a snapshot from being removed while something is made from it.

import { ForkdError } from "../errors.ts";
import type { Snapshot } from "../snapshot/store.ts";

export class Holds {
  /** ids of snapshots from which something is being made, with how often */
  readonly #held = new Map<string, number>();
  readonly #removing = new Set<string>();

  async whileMaking<V>({ manifest: { id, tag } }: Snapshot, work: () => Promise<V>): Promise<V> {
    if (this.#removing.has(id)) throw new ForkdError("NOT_FOUND", `Snapshot ${tag} is being removed.`);
    this.#held.set(id, (this.#held.get(id) ?? 0) + 1);
    try {
      return await work();
    } finally {
      const others = (this.#held.get(id) ?? 1) - 1;
      if (others > 0) this.#held.set(id, others);
      else this.#held.delete(id);
    }
  }

  isHeld(id: string): boolean {
    return this.#held.has(id) || this.#removing.has(id);
  }

  /** Nothing is made from it while it is removed or renamed */
  async whileRemoving<V>(id: string, name: string, work: () => Promise<V>): Promise<V> {
    if (this.isHeld(id)) throw new ForkdError("IN_USE", `Snapshot ${name} is being forked, branched from, renamed or removed.`);
    this.#removing.add(id);
    try {
      return await work();
    } finally {
      this.#removing.delete(id);
    }
  }
}
