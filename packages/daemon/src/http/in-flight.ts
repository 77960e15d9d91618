// What is being answered now, so that stopping can wait for it and, when that takes too long, end it.

export class InFlight {
  readonly #controllers = new Set<AbortController>();
  #waiting: (() => void)[] = [];
  #count = 0;
  #lastMs = Date.now();

  get count(): number {
    return this.#count;
  }

  /** When the last one ended */
  get lastMs(): number {
    return this.#count > 0 ? Date.now() : this.#lastMs;
  }

  enter(): void {
    this.#count++;
  }

  leave(): void {
    this.#count--;
    if (this.#count > 0) return;
    this.#lastMs = Date.now();
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Counts the work, which may outlive its connection */
  async run<V>(controller: AbortController, work: () => Promise<V>): Promise<V> {
    this.enter();
    this.#controllers.add(controller);
    try {
      return await work();
    } finally {
      this.#controllers.delete(controller);
      this.leave();
    }
  }

  abortAll(reason: Error): void {
    for (const controller of this.#controllers) controller.abort(reason);
  }

  /** Whether everything ended within that time */
  async idle(timeoutMs: number): Promise<boolean> {
    if (this.#count === 0) return true;
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, timeoutMs);
    });
    await Promise.race([timeout, new Promise<void>((resolve) => void this.#waiting.push(resolve))]);
    clearTimeout(timer);
    return this.#count === 0;
  }
}
