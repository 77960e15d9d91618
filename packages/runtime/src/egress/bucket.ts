// Token bucket: a burst, and a rate per second.

export class Bucket {
  readonly #most: number;
  readonly #perSecond: number;
  readonly #now: () => number;
  #level: number;
  #at: number;

  constructor(most: number, perSecond: number, now: () => number = () => performance.now()) {
    this.#most = most;
    this.#perSecond = perSecond;
    this.#now = now;
    this.#level = most;
    this.#at = now();
  }

  /** Takes a token; false when there is none */
  take(): boolean {
    const now = this.#now();
    this.#level = Math.min(this.#most, this.#level + ((now - this.#at) / 1000) * this.#perSecond);
    this.#at = now;
    if (this.#level < 1) return false;
    this.#level--;
    return true;
  }
}
