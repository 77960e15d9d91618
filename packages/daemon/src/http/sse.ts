// Server-sent events that are pulled as the client takes them.

import { Readable } from "node:stream";

/** Heartbeats that a client may leave unread */
const MAX_UNREAD = 4;

export type ServerEvent = { id?: string; event: string; data: object };

export const SSE_HEADERS = { "content-type": "text/event-stream", "cache-control": "no-store" };

export function wantsEvents(accept: string | undefined): boolean {
  return accept !== undefined && accept.toLowerCase().includes("text/event-stream");
}

export type SseOptions = {
  heartbeatMs: number;
  /** ends it in order */
  over: AbortSignal;
  /** cuts it off: nobody reads it */
  dropped?: AbortSignal;
  /** the last event of one that failed */
  onFailure: (error: unknown) => ServerEvent;
};

export function sseStream(events: AsyncIterable<ServerEvent>, opts: SseOptions): Readable {
  const iterator = events[Symbol.asyncIterator]();
  let isPulling = false;
  let hasEnded = false;
  let unread = 0;
  const end = (): void => {
    if (hasEnded || stream.destroyed) return;
    hasEnded = true;
    stream.push(null);
  };
  const pull = async (): Promise<void> => {
    isPulling = true;
    try {
      for (;;) {
        const step = await iterator.next();
        if (hasEnded || stream.destroyed) return;
        if (step.done === true) return end();
        if (!stream.push(format(step.value))) return;
      }
    } catch (error) {
      if (!hasEnded && !stream.destroyed) stream.push(format(opts.onFailure(error)));
      end();
    } finally {
      isPulling = false;
    }
  };
  // not awaited: it ends when what it waits for has come
  const letGo = (): void => void iterator.return?.().catch(() => undefined);
  const cut = (): void => void stream.destroy(new Error("the client does not read its events"));
  const stream = new Readable({
    read: () => {
      if (!isPulling && !hasEnded) void pull();
    },
    destroy(error, done) {
      clearInterval(heartbeat);
      opts.over.removeEventListener("abort", end);
      opts.dropped?.removeEventListener("abort", cut);
      letGo();
      done(error);
    },
  });
  const heartbeat = setInterval(() => {
    unread = stream.readableLength > 0 ? unread + 1 : 0;
    if (unread > MAX_UNREAD) cut();
    else if (unread === 0 && !hasEnded) stream.push(": still here\n\n");
  }, opts.heartbeatMs);
  opts.over.addEventListener("abort", end, { once: true });
  opts.dropped?.addEventListener("abort", cut, { once: true });
  if (opts.over.aborted) end();
  return stream;
}

function format({ id, event, data }: ServerEvent): string {
  return `${id === undefined ? "" : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}
