// Counting semaphore with a queue per key. The queues take turns, and keys that are in use share the places.

/** A key counts as in use so long after its last work: its next one then finds the others at their share, not at all places */
const IN_USE_MS = 1000;

type Queue = { waiting: (() => void)[]; running: number; usedMs: number };

export class FairSemaphore {
  readonly #count: number;
  readonly #nowMs: () => number;
  #running = 0;
  /** keys in use; of those with waiting works the first is the next one to be served */
  readonly #queues = new Map<string, Queue>();

  constructor(count: number, nowMs: () => number = () => performance.now()) {
    this.#count = count;
    this.#nowMs = nowMs;
  }

  async run<V>(key: string, work: () => Promise<V>): Promise<V> {
    const queue = this.#queueOf(key);
    if (queue.waiting.length === 0 && this.#mayStart(queue)) this.#begin(queue);
    else await new Promise<void>((resolve) => void queue.waiting.push(resolve));
    try {
      return await work();
    } finally {
      this.#running--;
      queue.running--;
      queue.usedMs = this.#nowMs();
      this.#serve();
    }
  }

  #queueOf(key: string): Queue {
    const now = this.#nowMs();
    for (const [other, { waiting, running, usedMs }] of this.#queues)
      if (running === 0 && waiting.length === 0 && now - usedMs > IN_USE_MS) this.#queues.delete(other);
    const queue = this.#queues.get(key) ?? { waiting: [], running: 0, usedMs: now };
    this.#queues.set(key, queue);
    return queue;
  }

  /** One key alone has all places; each of several has its share, at least one */
  #mayStart({ running }: Queue): boolean {
    return this.#running < this.#count && running < Math.max(1, Math.floor(this.#count / this.#queues.size));
  }

  #begin(queue: Queue): void {
    this.#running++;
    queue.running++;
  }

  #serve(): void {
    // one that is moved to the end is looked at again, until no work may start
    for (const [key, queue] of this.#queues) {
      if (queue.waiting.length === 0 || !this.#mayStart(queue)) continue;
      // to the end of the line
      this.#queues.delete(key);
      this.#queues.set(key, queue);
      this.#begin(queue);
      queue.waiting.shift()?.();
    }
  }
}
