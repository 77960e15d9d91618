// A list of Kubernetes objects that follows its changes. Without the API server it keeps the last state.

import { setTimeout as sleep } from "node:timers/promises";

const RETRY_FIRST_MS = 250;
const RETRY_MOST_MS = 5000;
/** A watch that ends earlier has failed: the wait before the next one grows */
const LASTS_MS = 5000;
const SEEN_WITHIN_MS = 3000;

export type KubernetesObject = { metadata?: { name?: string; uid?: string; resourceVersion?: string } };

/** `BOOKMARK`: nothing changed up to that version; `ERROR`: `object` is a Status, such as 410 for a version that is too old */
export type Change<T> =
  | { type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK"; object: T }
  | { type: "ERROR"; object: { message?: string } };

export type Source<T> = {
  list(signal: AbortSignal): Promise<{ version: string; items: T[] }>;
  /** Changes after a version; ends after some minutes */
  watch(version: string, signal: AbortSignal): AsyncIterable<Change<T>>;
};

export class Cache<T extends KubernetesObject> implements AsyncDisposable {
  readonly #source: Source<T>;
  readonly #stop = new AbortController();
  readonly #first = Promise.withResolvers<undefined>();
  readonly #observers = new Set<() => void>();
  readonly #loop: Promise<void>;
  /** by name: all objects are of one namespace */
  #items = new Map<string, T>();
  #isComplete = false;
  #failure: unknown = null;

  constructor(source: Source<T>) {
    this.#source = source;
    this.#loop = this.#followUntilClosed();
  }

  /** Whether the list was read once, at the latest after `withinMs` */
  async isComplete(withinMs: number): Promise<boolean> {
    const waiting = new AbortController();
    const late = sleep(withinMs, undefined, { signal: waiting.signal }).catch(() => undefined);
    await Promise.race([this.#first.promise, late]);
    waiting.abort();
    return this.#isComplete;
  }

  /** Why the list does not follow changes at present, or null */
  get failure(): unknown {
    return this.#failure;
  }

  list(): readonly T[] {
    return [...this.#items.values()];
  }

  /** Waits until the list contains what a write has answered, or for a bounded time: the write is done in any case */
  async seen(isSeen: (items: readonly T[]) => boolean): Promise<void> {
    if (isSeen(this.list())) return;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    const forget = this.observe(() => isSeen(this.list()) && resolve(undefined));
    const timer = setTimeout(resolve, SEEN_WITHIN_MS, undefined);
    await promise;
    clearTimeout(timer);
    forget();
  }

  /** Calls back after each change until the result is called */
  observe(changed: () => void): () => void {
    this.#observers.add(changed);
    return () => this.#observers.delete(changed);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.#observers.clear();
    await this.#loop;
  }

  async #followUntilClosed(): Promise<void> {
    const { signal } = this.#stop;
    let retryMs = RETRY_FIRST_MS;
    while (!signal.aborted) {
      let openedAt = Infinity;
      try {
        const { version, items } = await this.#source.list(signal);
        this.#items = new Map(items.map((item) => [nameOf(item), item]));
        this.#failure = null;
        this.#isComplete = true;
        this.#tell();
        this.#first.resolve(undefined);
        let from = version;
        while (!signal.aborted) {
          openedAt = performance.now();
          from = await this.#follow(from);
          // it was ended by its time limit, or by an API server that stops
          if (performance.now() < openedAt + LASTS_MS) await sleep(RETRY_FIRST_MS, undefined, { signal });
        }
      } catch (error) {
        if (signal.aborted) return;
        this.#failure = error;
        if (performance.now() > openedAt + LASTS_MS) retryMs = RETRY_FIRST_MS;
        await sleep(retryMs, undefined, { signal }).catch(() => undefined); // closed
        retryMs = Math.min(retryMs * 2, RETRY_MOST_MS);
      }
    }
  }

  /** Returns the version up to which changes are known. Throws when the list must be read again */
  async #follow(version: string): Promise<string> {
    let known = version;
    for await (const change of this.#source.watch(version, this.#stop.signal)) {
      if (change.type === "ERROR") throw new Error(change.object.message ?? "the watch failed");
      const { object } = change;
      known = object.metadata?.resourceVersion ?? known;
      if (change.type === "BOOKMARK") continue;
      if (change.type === "DELETED") this.#items.delete(nameOf(object));
      else this.#items.set(nameOf(object), object);
      this.#tell();
    }
    return known;
  }

  #tell(): void {
    for (const observer of this.#observers) observer();
  }
}

function nameOf({ metadata }: KubernetesObject): string {
  return metadata?.name ?? "";
}
