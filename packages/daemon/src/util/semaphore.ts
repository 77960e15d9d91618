// At most so many at once; the others wait their turn.

export class Semaphore {
  #free: number;
  readonly #queue: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  async run<V>(work: () => Promise<V>): Promise<V> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => void this.#queue.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.#queue.shift();
      if (next) next();
      else this.#free++;
    }
  }
}
