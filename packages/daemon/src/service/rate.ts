// Events in a sliding window, counted in slots: its memory does not depend on their number.

const SLOTS = 20;

export class Rate {
  readonly #slotMs: number;
  readonly #nowMs: () => number;
  /** slot number → events */
  readonly #slots = new Map<number, number>();

  constructor(windowMs: number, nowMs: () => number) {
    this.#slotMs = windowMs / SLOTS;
    this.#nowMs = nowMs;
  }

  /** Events in the window that ends now */
  get count(): number {
    this.#drop();
    return this.#slots.values().reduce((sum, count) => sum + count, 0);
  }

  /** Time until the oldest counted events leave the window */
  get waitMs(): number {
    this.#drop();
    const [oldest] = this.#slots.keys();
    return oldest === undefined ? 0 : (oldest + SLOTS) * this.#slotMs - this.#nowMs();
  }

  add(n: number): void {
    const slot = this.#slot;
    this.#slots.set(slot, (this.#slots.get(slot) ?? 0) + n);
  }

  get #slot(): number {
    return Math.floor(this.#nowMs() / this.#slotMs);
  }

  #drop(): void {
    for (const slot of this.#slots.keys()) if (slot <= this.#slot - SLOTS) this.#slots.delete(slot);
  }
}
