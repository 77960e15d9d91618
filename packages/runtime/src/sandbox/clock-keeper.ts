// Periodic correction of the wall clocks of running sandboxes.

/** kvm-clock follows the host's raw clock, without NTP's corrections: a guest drifts by some seconds a day at worst */
const KEEP_CLOCK_MS = 600_000;

export class ClockKeeper {
  readonly #timer: NodeJS.Timeout;

  constructor(sandboxes: () => Iterable<{ keepClock: () => Promise<void> }>, everyMs: number = KEEP_CLOCK_MS) {
    this.#timer = setInterval(() => {
      for (const sandbox of sandboxes()) void sandbox.keepClock();
    }, everyMs).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
