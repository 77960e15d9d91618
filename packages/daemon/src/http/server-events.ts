// Server-sent events of something that goes on: as fast as the client takes them, and a sign of life while nothing happens.

import { Readable } from "node:stream";

/** Heartbeats that a client may leave unread */
const MAX_UNREAD = 4;

export function serverEvents(
  events: AsyncIterable<{ type: string }>,
  opts: { heartbeatMs: number; /** ends the stream in order */ over: AbortSignal },
): Readable {
  const iterator = events[Symbol.asyncIterator]();
  let isPulling = false;
  let unread = 0;
  const pull = async (): Promise<void> => {
    if (isPulling) return;
    isPulling = true;
    try {
      for (;;) {
        const next = await iterator.next();
        if (next.done || opts.over.aborted) return void stream.push(null);
        if (!stream.push(format(next.value))) return;
      }
    } catch (error) {
      if (opts.over.aborted) stream.push(null);
      else stream.destroy(error instanceof Error ? error : new Error(String(error)));
    } finally {
      isPulling = false;
    }
  };
  const stream = new Readable({
    read: () => void pull(),
    destroy(error, done) {
      clearInterval(heartbeat);
      Promise.resolve(iterator.return?.()).then(
        () => done(error),
        () => done(error),
      );
    },
  });
  const heartbeat = setInterval(() => {
    unread = stream.readableLength > 0 ? unread + 1 : 0;
    if (unread > MAX_UNREAD) stream.destroy(new Error("the client does not read its events"));
    else if (unread === 0 && !opts.over.aborted && !stream.readableEnded) stream.push(": still here\n\n");
  }, opts.heartbeatMs);
  return stream;
}

function format(event: { type: string }): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}
