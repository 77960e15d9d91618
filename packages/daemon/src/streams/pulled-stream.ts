// Readable stream from an async iterator: pulls items at the client's speed and sends heartbeats between them.

import { Readable } from "node:stream";

/** Unread heartbeats after which a client is disconnected */
const MAX_UNREAD = 4;

export type PulledOptions<T> = {
  format: (item: T) => string | Uint8Array;
  heartbeatMs: number;
  heartbeat: string | Uint8Array;
  /** ends the stream cleanly */
  over: AbortSignal;
  /** last item of a stream ended by `over` */
  farewell?: T | undefined;
  /** aborted when the client does not read: the connection is reset */
  dropped?: AbortSignal | undefined;
  /** last item of a failed stream. If it throws, the connection is reset */
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
  // not awaited: the iterator ends only when its pending item arrives
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
