// Time limit of a call, combined with the caller's signal.

import { TimeoutError } from "./errors.ts";

/** Largest delay of setTimeout */
const MAX_MS = 2 ** 31 - 1;
/** The daemon's default time-out for programs and code */
const GUEST_SECS = 30;
/** Added to the guest's time for the round trip */
const GUEST_MARGIN_MS = 10_000;
/** Added to the default time-out for each child of a fork */
const PER_CHILD_MS = 500;

export class Deadline {
  private readonly controller = new AbortController();
  private readonly timeoutMs: number;
  private readonly describe: string;
  private readonly caller: AbortSignal | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isClosed = false;

  /** @throws the caller's reason when its signal is aborted already */
  constructor(describe: string, timeoutMs: number, caller: AbortSignal | undefined) {
    caller?.throwIfAborted();
    this.describe = describe;
    this.timeoutMs = timeoutMs;
    this.caller = caller;
    caller?.addEventListener("abort", this.onAbort, { once: true });
    this.restart();
  }

  /** Aborted with the caller's reason, or with a TimeoutError */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Restarts the time after data arrived */
  restart(): void {
    this.pause();
    if (!this.isClosed && this.timeoutMs > 0 && this.timeoutMs < MAX_MS) this.timer = setTimeout(this.onTimeout, this.timeoutMs);
  }

  /** Suspends the limit until restart */
  pause(): void {
    clearTimeout(this.timer);
  }

  /** Removes timer and listener */
  close(): void {
    this.isClosed = true;
    this.pause();
    this.caller?.removeEventListener("abort", this.onAbort);
  }

  private readonly onAbort = (): void => this.controller.abort(this.caller?.reason);

  private readonly onTimeout = (): void =>
    this.controller.abort(
      new TimeoutError("CALL_TIMEOUT", `${this.describe} took longer than ${this.timeoutMs} ms.`, {
        hint: "Raise timeoutMs if it is only slow. It is not known whether the daemon did it.",
      }),
    );
}

/** Sleeps; rejects with the signal's reason when it aborts */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
}

/** Time-out of a call that runs a program or code */
export function guestTimeoutMs(opts: { timeoutMs?: number | undefined; timeoutSecs?: number | undefined }): number {
  return opts.timeoutMs ?? (opts.timeoutSecs ?? GUEST_SECS) * 1000 + GUEST_MARGIN_MS;
}

/** Time-out of a call that starts `n` children */
export function forkTimeoutMs(timeoutMs: number, n: number = 1): number {
  return timeoutMs === 0 ? 0 : timeoutMs + n * PER_CHILD_MS;
}
