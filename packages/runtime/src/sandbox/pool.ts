// Pool of VMM processes that are started in advance and paused, with the state of their snapshot loaded.

import { messageOf } from "../errors.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { discardUnclaimedVm, startUnclaimedVm, type ForkContext, type UnclaimedVm } from "./fork.ts";

/** idle time of the runtime before the pool is refilled */
const IDLE_MS = 150;
const RETRY_MS = 5000;

export type PoolOptions = {
  context: ForkContext;
  /** throws if no VM of this snapshot may be started */
  check: (snapshot: Snapshot) => void;
  /** end of the last request; undefined while one is running */
  idleSince: () => number | undefined;
  onError: (message: string) => void;
};

export class Pool {
  readonly #opts: PoolOptions;
  readonly #sizes = new Map<string, { snapshot: Snapshot; size: number }>();
  readonly #waiting = new Map<string, UnclaimedVm[]>();
  #timer: NodeJS.Timeout | undefined;
  #filling: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(opts: PoolOptions) {
    this.#opts = opts;
  }

  /** Sets the number of waiting VMMs for this snapshot and resolves when they are loaded */
  async resize(snapshot: Snapshot, size: number): Promise<void> {
    const { id } = snapshot.manifest;
    if (size === 0) return this.drop(id);
    this.#opts.check(snapshot);
    this.#sizes.set(id, { snapshot, size });
    const waiting = this.#waiting.get(id) ?? [];
    await Promise.all(waiting.splice(size).map(discardUnclaimedVm));
    while (!this.#closed && this.#missing(id) > 0) await this.#add(snapshot);
  }

  /** Ends all waiting VMMs of this snapshot; resolves when none is left, including one that was starting */
  async drop(id: string): Promise<void> {
    this.#sizes.delete(id);
    await Promise.all((this.#waiting.get(id) ?? []).splice(0).map(discardUnclaimedVm));
    await this.#filling;
  }

  /** Removes and returns a waiting VMM of this snapshot, if there is one */
  take(snapshot: Snapshot): UnclaimedVm | undefined {
    const child = this.#waiting.get(snapshot.manifest.id)?.shift();
    if (child) this.#schedule(IDLE_MS);
    return child;
  }

  /** number of waiting VMMs, of all snapshots */
  get waiting(): number {
    return [...this.#waiting.values()].reduce((sum, list) => sum + list.length, 0);
  }

  /** wanted number of VMMs of one snapshot */
  sizeOf(id: string): number {
    return this.#sizes.get(id)?.size ?? 0;
  }

  /** wanted number of VMMs, of all snapshots */
  get size(): number {
    return [...this.#sizes.values()].reduce((sum, { size }) => sum + size, 0);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#filling;
    await Promise.all([...this.#waiting.values()].flatMap((list) => list.splice(0)).map(discardUnclaimedVm));
  }

  #missing(id: string): number {
    return this.sizeOf(id) - (this.#waiting.get(id)?.length ?? 0);
  }

  async #add(snapshot: Snapshot): Promise<void> {
    const { id } = snapshot.manifest;
    const child = await startUnclaimedVm(this.#opts.context, snapshot, "hold");
    try {
      await child.vm.loaded();
    } catch (error) {
      await discardUnclaimedVm(child);
      throw error;
    }
    // the pool may have shrunk, or another call may have filled it, during the start
    if (this.#closed || this.#missing(id) <= 0) return discardUnclaimedVm(child);
    const list = this.#waiting.get(id) ?? [];
    this.#waiting.set(id, list);
    list.push(child);
    // a VMM that dies while it waits must not be handed out
    void child.vm.exited.then(async () => {
      const at = list.indexOf(child);
      if (at < 0) return;
      list.splice(at, 1);
      this.#schedule(IDLE_MS);
      await discardUnclaimedVm(child);
    });
  }

  #schedule(afterMs: number): void {
    if (this.#timer || this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#filling = this.#refill();
    }, afterMs);
  }

  /** Adds one VMM at a time, and only while no request is running */
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
