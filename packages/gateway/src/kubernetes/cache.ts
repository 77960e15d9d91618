// A list of Kubernetes objects that follows its changes. Without the API server it keeps the last state.

import { setTimeout as sleep } from "node:timers/promises";

const RETRY_FIRST_MS = 250;
const RETRY_MOST_MS = 10_000;
const SEEN_WITHIN_MS = 3000;

/** ListWatch of the client library, for objects as they are in JSON */
export type Followed<T> = {
  on(event: "change" | "error", listener: (of: unknown) => void): void;
  start(): Promise<void>;
  stop(): Promise<void>;
  list(): readonly T[];
};

export class Cache<T extends object> implements AsyncDisposable {
  readonly #informer: Followed<T>;
  readonly #stop = new AbortController();
  readonly #first = Promise.withResolvers<undefined>();
  readonly #observers = new Set<() => void>();
  #retryMs = RETRY_FIRST_MS;
  #isComplete = false;
  #failure: unknown = null;

  constructor(informer: Followed<T>) {
    this.#informer = informer;
    informer.on("change", () => this.#tell());
    informer.on("error", (error) => void this.#again(error));
    void this.#start();
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
    return this.#informer.list();
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
    await this.#informer.stop();
  }

  /** Returns when the watch after the list is open, or has failed, which the event `error` reports */
  async #start(): Promise<void> {
    const failed = this.#failure;
    await this.#informer.start();
    if (this.#failure !== failed) return;
    this.#failure = null;
    this.#retryMs = RETRY_FIRST_MS;
    if (this.#isComplete) return;
    this.#isComplete = true;
    this.#first.resolve(undefined);
    this.#tell();
  }

  async #again(error: unknown): Promise<void> {
    this.#failure = error;
    const waitMs = this.#retryMs;
    this.#retryMs = Math.min(this.#retryMs * 2, RETRY_MOST_MS);
    try {
      await sleep(waitMs, undefined, { signal: this.#stop.signal });
    } catch {
      return; // closed
    }
    await this.#start();
  }

  #tell(): void {
    for (const observer of this.#observers) observer();
  }
}
