// Counting semaphore with a queue per key. The queues take turns, so a key with many waiting works delays others by one turn.

export class FairSemaphore {
  #free: number;
  /** waiting works by key; the first key is the next one to be served */
  readonly #queues = new Map<string, (() => void)[]>();

  constructor(count: number) {
    this.#free = count;
  }

  async run<V>(key: string, work: () => Promise<V>): Promise<V> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#enqueue(key, resolve));
    try {
      return await work();
    } finally {
      const next = this.#next();
      if (next) next();
      else this.#free++;
    }
  }

  #enqueue(key: string, start: () => void): void {
    const queue = this.#queues.get(key);
    if (queue) queue.push(start);
    else this.#queues.set(key, [start]);
  }

  #next(): (() => void) | undefined {
    const [first] = this.#queues;
    if (!first) return undefined;
    const [key, queue] = first;
    const start = queue.shift();
    // to the end of the line, if it has more
    this.#queues.delete(key);
    if (queue.length > 0) this.#queues.set(key, queue);
    return start;
  }
}
