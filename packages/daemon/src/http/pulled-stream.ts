// An answer that goes on: what comes is pulled as the client takes it, and it hears from us also when nothing comes.

import { Readable } from "node:stream";

/** Heartbeats that a client may leave unread */
const MAX_UNREAD = 4;

export type PulledOptions<T> = {
  format: (item: T) => string | Uint8Array;
  heartbeatMs: number;
  heartbeat: string | Uint8Array;
  /** ends it in order */
  over: AbortSignal;
  /** what is said at such an end */
  farewell?: T | undefined;
  /** cuts it off: nobody reads it */
  dropped?: AbortSignal | undefined;
  /** the last item of one that failed; where there is none that could be understood it throws, and the connection breaks */
  onFailure: (error: unknown) => T;
};

export function pulledStream<T>(items: AsyncIterable<T>, opts: PulledOptions<T>): Readable {
  const iterator = items[Symbol.asyncIterator]();
  let isPulling = false;
  let hasEnded = false;
  let unread = 0;
  const end = (): void => {
    if (hasEnded || stream.destroyed) return;
    hasEnded = true;
    stream.push(null);
  };
  const sayGoodbye = (): void => {
    if (!hasEnded && !stream.destroyed && opts.farewell !== undefined) stream.push(opts.format(opts.farewell));
    end();
  };
  const fail = (error: unknown): void => {
    if (hasEnded || stream.destroyed) return;
    try {
      stream.push(opts.format(opts.onFailure(error)));
      end();
    } catch (fatal) {
      stream.destroy(fatal as Error);
    }
  };
  const pull = async (): Promise<void> => {
    isPulling = true;
    try {
      for (;;) {
        const step = await iterator.next();
        if (hasEnded || stream.destroyed) return;
        if (step.done === true) return end();
        if (!stream.push(opts.format(step.value))) return;
      }
    } catch (error) {
      fail(error);
    } finally {
      isPulling = false;
    }
  };
  // not awaited: it ends when what it waits for has come
  const letGo = (): void => void iterator.return?.().catch(() => undefined);
  const cut = (): void => void stream.destroy(new Error("the client does not read what it gets"));
  const stream = new Readable({
    read: () => {
      if (!isPulling && !hasEnded) void pull();
    },
    destroy(error, done) {
      clearInterval(heartbeat);
      opts.over.removeEventListener("abort", sayGoodbye);
      opts.dropped?.removeEventListener("abort", cut);
      letGo();
      done(error);
    },
  });
  const heartbeat = setInterval(() => {
    unread = stream.readableLength > 0 ? unread + 1 : 0;
    if (unread > MAX_UNREAD) cut();
    else if (unread === 0 && !hasEnded) stream.push(opts.heartbeat);
  }, opts.heartbeatMs);
  opts.over.addEventListener("abort", sayGoodbye, { once: true });
  opts.dropped?.addEventListener("abort", cut, { once: true });
  if (opts.over.aborted) sayGoodbye();
  return stream;
}
