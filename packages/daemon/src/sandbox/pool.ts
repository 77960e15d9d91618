// VMM processes started in advance, with the state of their snapshot loaded, waiting to be let go.

import { messageOf } from "../errors.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { discardRawChild, startRawChild, type ForkContext, type RawChild } from "./fork.ts";

/** the runtime must have been idle for so long before a place is filled again */
const IDLE_MS = 150;
const RETRY_MS = 5000;

export type PoolOptions = {
  context: ForkContext;
  /** when the last request ended; undefined while one is under way */
  idleSince: () => number | undefined;
  onError: (message: string) => void;
};

export class Pool {
  readonly #opts: PoolOptions;
  readonly #sizes = new Map<string, { snapshot: Snapshot; size: number }>();
  readonly #waiting = new Map<string, RawChild[]>();
  #timer: NodeJS.Timeout | undefined;
  #filling: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(opts: PoolOptions) {
    this.#opts = opts;
  }

  /** Sets how many VMMs wait for this snapshot and resolves when they do */
  async resize(snapshot: Snapshot, size: number): Promise<void> {
    const { id } = snapshot.manifest;
    if (size === 0) return this.drop(id);
    this.#sizes.set(id, { snapshot, size });
    const waiting = this.#waiting.get(id) ?? [];
    await Promise.all(waiting.splice(size).map(discardRawChild));
    while (!this.#closed && this.#missing(id) > 0) await this.#add(snapshot);
  }

  /** Lets no VMM wait for this snapshot any more; resolves when none does, not even one that was just being started */
  async drop(id: string): Promise<void> {
    this.#sizes.delete(id);
    await Promise.all((this.#waiting.get(id) ?? []).splice(0).map(discardRawChild));
    await this.#filling;
  }

  /** A VMM that waits for this snapshot, if there is one */
  take(snapshot: Snapshot): RawChild | undefined {
    const child = this.#waiting.get(snapshot.manifest.id)?.shift();
    if (child) this.#schedule(IDLE_MS);
    return child;
  }

  /** how many wait, over all snapshots */
  get waiting(): number {
    return [...this.#waiting.values()].reduce((sum, list) => sum + list.length, 0);
  }

  /** how many are wanted, over all snapshots */
  get size(): number {
    return [...this.#sizes.values()].reduce((sum, { size }) => sum + size, 0);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#filling;
    await Promise.all([...this.#waiting.values()].flatMap((list) => list.splice(0)).map(discardRawChild));
  }

  #missing(id: string): number {
    return (this.#sizes.get(id)?.size ?? 0) - (this.#waiting.get(id)?.length ?? 0);
  }

  async #add(snapshot: Snapshot): Promise<void> {
    const { id } = snapshot.manifest;
    const child = await startRawChild(this.#opts.context, snapshot, "hold");
    try {
      await child.vm.loaded();
    } catch (error) {
      await discardRawChild(child);
      throw error;
    }
    // the pool may have shrunk, or been filled by another call, meanwhile
    if (this.#closed || this.#missing(id) <= 0) return discardRawChild(child);
    const list = this.#waiting.get(id) ?? [];
    this.#waiting.set(id, list);
    list.push(child);
    // one that dies while it waits is not handed out
    void child.vm.exited.then(async () => {
      const at = list.indexOf(child);
      if (at < 0) return;
      list.splice(at, 1);
      this.#schedule(IDLE_MS);
      await discardRawChild(child);
    });
  }

  #schedule(afterMs: number): void {
    if (this.#timer || this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#filling = this.#refill();
    }, afterMs);
  }

  /** Adds one VMM at a time, and only while no request needs the machine */
  async #refill(): Promise<void> {
    const wanted = [...this.#sizes.values()].find(({ snapshot }) => this.#missing(snapshot.manifest.id) > 0);
    if (!wanted || this.#closed) return;
    const since = this.#opts.idleSince();
    if (since === undefined || performance.now() - since < IDLE_MS) {
      this.#schedule(IDLE_MS);
      return;
    }
    try {
      await this.#add(wanted.snapshot);
      this.#schedule(0);
    } catch (error) {
      this.#opts.onError(`The pool could not be filled: ${messageOf(error)}`);
      this.#schedule(RETRY_MS);
    }
  }
}
