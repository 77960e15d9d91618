// The time a call may take, joined with the caller's own signal.

import { TimeoutError } from "./errors.ts";

/** What setTimeout can hold */
const MAX_MS = 2 ** 31 - 1;

export class Deadline {
  private readonly controller = new AbortController();
  private readonly timeoutMs: number;
  private readonly describe: string;
  private readonly caller: AbortSignal | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isClosed = false;

  /** @throws the caller's reason when its signal has been aborted already */
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

  /** Something came: the time starts anew */
  restart(): void {
    this.pause();
    if (!this.isClosed && this.timeoutMs > 0 && this.timeoutMs < MAX_MS) this.timer = setTimeout(this.onTimeout, this.timeoutMs);
  }

  /** No limit until restart */
  pause(): void {
    clearTimeout(this.timer);
  }

  /** Leaves nothing behind */
  close(): void {
    this.isClosed = true;
    this.pause();
    this.caller?.removeEventListener("abort", this.onAbort);
  }

  private readonly onAbort = (): void => this.controller.abort(this.caller?.reason);

  private readonly onTimeout = (): void =>
    this.controller.abort(
      new TimeoutError("CALL_TIMEOUT", `${this.describe} took longer than ${this.timeoutMs} ms.`, {
        hint: "Raise timeoutMs if it is only slow. Whether it was done is not known.",
      }),
    );
}

/** Waits, unless the signal ends it with its reason */
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
