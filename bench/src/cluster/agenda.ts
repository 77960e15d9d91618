// Events of a simulation in the order of their time.

type Entry = { atMs: number; order: number; run: () => void };

export class Agenda {
  nowMs = 0;
  #order = 0;
  readonly #heap: Entry[] = [];

  in(ms: number, run: () => void): void {
    this.at(this.nowMs + ms, run);
  }

  at(atMs: number, run: () => void): void {
    const heap = this.#heap;
    const entry = { atMs, order: this.#order++, run };
    let at = heap.length;
    heap.push(entry);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent];
      if (!above || !isBefore(entry, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = entry;
  }

  /** Runs all events up to a time; events may add others */
  runUntil(endMs: number): void {
    for (let first = this.#heap[0]; first && first.atMs <= endMs; first = this.#heap[0]) {
      this.#removeFirst();
      this.nowMs = first.atMs;
      first.run();
    }
    this.nowMs = endMs;
  }

  #removeFirst(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (!last || heap.length === 0) return;
    let at = 0;
    for (;;) {
      const left = heap[2 * at + 1];
      const right = heap[2 * at + 2];
      if (!left) break;
      const isRight = right !== undefined && isBefore(right, left);
      const child = isRight ? right : left;
      if (!isBefore(child, last)) break;
      heap[at] = child;
      at = 2 * at + (isRight ? 2 : 1);
    }
    heap[at] = last;
  }
}

/** Events of the same time run in the order in which they were added */
function isBefore(a: Entry, b: Entry): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
