// The lock of a snapshot: says that it is in use, and keeps it from being removed or renamed meanwhile.
// It holds within one process. For other processes the reservation of a tag (tags.ts) protects a snapshot that is being made.

import { ForkdError } from "../errors.ts";
import type { Snapshot } from "./store.ts";

export class SnapshotLocks {
  /** work that needs the data of a snapshot, by id */
  readonly #needed = new Counts();
  /** work that makes something from a snapshot, by id */
  readonly #making = new Counts();
  readonly #removing = new Set<string>();

  /** Keeps a snapshot from being collected as unneeded. The work itself may rename or remove it; the snapshot may not exist yet */
  async whileNeeded<V>(id: string, work: () => Promise<V>): Promise<V> {
    return this.#needed.run(id, work);
  }

  /** Also keeps it from being removed or renamed by any request. Throws NOT_FOUND while it is being removed */
  async whileMaking<V>({ manifest: { id, tag } }: Snapshot, work: () => Promise<V>): Promise<V> {
    if (this.#removing.has(id)) throw new ForkdError("NOT_FOUND", `Snapshot ${tag} is being removed.`);
    return this.#making.run(id, work);
  }

  isHeld(id: string): boolean {
    return this.#needed.has(id) || this.#isBusy(id);
  }

  /** Nothing is made from it while it is removed or renamed. Throws IN_USE */
  async whileRemoving<V>(id: string, name: string, work: () => Promise<V>): Promise<V> {
    if (this.#isBusy(id)) throw new ForkdError("IN_USE", `Snapshot ${name} is being forked, branched from, renamed or removed.`);
    this.#removing.add(id);
    try {
      return await work();
    } finally {
      this.#removing.delete(id);
    }
  }

  #isBusy(id: string): boolean {
    return this.#making.has(id) || this.#removing.has(id);
  }
}

class Counts {
  readonly #byId = new Map<string, number>();

  has(id: string): boolean {
    return this.#byId.has(id);
  }

  async run<V>(id: string, work: () => Promise<V>): Promise<V> {
    this.#byId.set(id, (this.#byId.get(id) ?? 0) + 1);
    try {
      return await work();
    } finally {
      const others = (this.#byId.get(id) ?? 1) - 1;
      if (others > 0) this.#byId.set(id, others);
      else this.#byId.delete(id);
    }
  }
}
