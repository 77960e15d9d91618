// What is being answered now, so that stopping can wait for it and, when that takes too long, end it.

/** A request on its way; who asks is known a moment after it has come */
type Asked = { readonly controller: AbortController; readonly identity: { name: string } | null };

export class InFlight {
  /** with how many parts of each are under way: its connection, and its work, which may outlive that */
  readonly #parts = new Map<Asked, number>();
  #waiting: (() => void)[] = [];
  #lastMs = Date.now();

  get count(): number {
    return this.#parts.size;
  }

  /** When the last one ended */
  get lastMs(): number {
    return this.count > 0 ? Date.now() : this.#lastMs;
  }

  enter(asked: Asked): void {
    this.#parts.set(asked, (this.#parts.get(asked) ?? 0) + 1);
  }

  leave(asked: Asked): void {
    const left = (this.#parts.get(asked) ?? 0) - 1;
    if (left > 0) {
      this.#parts.set(asked, left);
      return;
    }
    this.#parts.delete(asked);
    if (this.count > 0) return;
    this.#lastMs = Date.now();
    for (const wake of this.#waiting.splice(0)) wake();
  }

  async run<V>(asked: Asked, work: () => Promise<V>): Promise<V> {
    this.enter(asked);
    try {
      return await work();
    } finally {
      this.leave(asked);
    }
  }

  /** Whether there are others than the one with this signal */
  hasOthers(own: AbortSignal): boolean {
    return this.#parts.keys().some(({ controller }) => controller.signal !== own);
  }

  abortAll(reason: Error): void {
    for (const { controller } of this.#parts.keys()) controller.abort(reason);
  }

  /** Ends what this principal has under way, streams included; one that is done with its work, as the asking one may be, still answers */
  abortOf(principal: string, reason: Error): void {
    for (const { controller, identity } of this.#parts.keys()) if (identity?.name === principal) controller.abort(reason);
  }

  /** Whether everything ended within that time */
  async idle(timeoutMs: number): Promise<boolean> {
    if (this.count === 0) return true;
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, timeoutMs);
    });
    await Promise.race([timeout, new Promise<void>((resolve) => void this.#waiting.push(resolve))]);
    clearTimeout(timer);
    return this.count === 0;
  }
}
