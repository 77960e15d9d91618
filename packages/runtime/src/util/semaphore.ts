// Counting semaphore with a first-in, first-out queue.

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
