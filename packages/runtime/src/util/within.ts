// Bounds a wait by a time and by a signal.

import { ForkdError, messageOf } from "../errors.ts";

export function throwIfCancelled(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw cancelled(signal);
}

function cancelled(signal: AbortSignal | undefined): ForkdError {
  return new ForkdError("CANCELLED", `Cancelled: ${messageOf(signal?.reason)}.`);
}

/** The outcome of the promise, `error` after the time, or the reason of the signal */
export async function within<V>(promise: Promise<V>, timeoutMs: number, signal: AbortSignal | undefined, timeout: () => Error): Promise<V> {
  if (signal?.aborted) promise.catch(() => undefined); // its rejection would be unhandled
  throwIfCancelled(signal);
  const stop = Promise.withResolvers<never>();
  const timer = timeoutMs > 0 ? setTimeout(() => stop.reject(timeout()), timeoutMs) : undefined;
  const abort = (): void => stop.reject(cancelled(signal));
  signal?.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([promise, stop.promise]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}
