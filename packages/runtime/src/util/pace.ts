// Limits the rate at which messages of one sender are read: each costs some microseconds of the one thread that serves all sandboxes.

/** Senders that are not being read */
let resting = 0;

export type PaceOptions = {
  /** messages per millisecond that all resting senders together may send */
  perMs: number;
  /** messages that are read without a rest */
  burst: number;
  /** stops reading until the result is disposed */
  hold: () => Disposable;
};

export class Pace {
  readonly #opts: PaceOptions;
  #rest: { timer: NodeJS.Timeout; held: Disposable } | undefined;
  /** messages read, less those that the elapsed time allows */
  #load = 0;
  #loadedAt = 0;

  constructor(opts: PaceOptions) {
    this.#opts = opts;
  }

  /** Counts across reads, because a sender may split its messages into small pieces */
  count(messages: number): void {
    const { perMs, burst, hold } = this.#opts;
    const now = performance.now();
    this.#load = Math.max(0, this.#load - (now - this.#loadedAt) * perMs) + messages;
    this.#loadedAt = now;
    if (this.#load <= burst || this.#rest !== undefined) return;
    const held = hold();
    this.#rest = { held, timer: setTimeout(() => this.close(), (this.#load / perMs) * ++resting) };
  }

  /** Ends a rest. It also runs when the sender disconnects: otherwise callers that wait for the rest never continue */
  close(): void {
    const rest = this.#rest;
    if (!rest) return;
    this.#rest = undefined;
    clearTimeout(rest.timer);
    resting--;
    rest.held[Symbol.dispose]();
  }
}
