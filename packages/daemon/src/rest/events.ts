// Journal events as server-sent events: missed events first, then live ones.

import { Readable } from "node:stream";
import { ForkdError } from "@forkd/runtime/errors";
import type { Event, EventsQuery } from "../api/daemon.ts";
import type { Services } from "../dispatch/services.ts";

const PAGE = 500;
const RETRY_MS = 1000;
/** Unread heartbeats after which a client is disconnected */
const MAX_UNREAD = 4;

export type EventsRequest = { query: EventsQuery; project: string; lastEventId: string | string[] | undefined; signal: AbortSignal };

type Needs = {
  limits: Pick<Services["limits"], "heartbeatMs">;
  manager: Pick<Services["manager"], "events">;
  daemon: Pick<Services["daemon"], "stopping">;
};

export function openEvents({ query, project, lastEventId, signal }: EventsRequest, services: Needs): Readable {
  const { events } = services.manager;
  const over = AbortSignal.any([signal, services.daemon.stopping]);
  let since = startAfter(query, lastEventId, events.lastId);
  let unread = 0;

  // reads the journal at the client's speed: a slow client uses no memory and misses no event
  const pump = (): void => {
    while (!stream.destroyed && !over.aborted) {
      const page = events.list(project, { since, limit: PAGE });
      if (page.length === 0) return;
      since = page.at(-1)?.id ?? since;
      const text = page.filter((event) => matches(event, query)).map(format);
      if (text.length > 0 && !stream.push(text.join(""))) return;
    }
  };
  const stream = new Readable({
    read: pump,
    destroy(error, done) {
      unsubscribe();
      clearInterval(heartbeat);
      over.removeEventListener("abort", end);
      done(error);
    },
  });
  const unsubscribe = events.subscribe(() => {
    if (stream.readableLength < stream.readableHighWaterMark) pump();
  });
  const heartbeat = setInterval(() => {
    unread = stream.readableLength > 0 ? unread + 1 : 0;
    if (unread > MAX_UNREAD) stream.destroy(new Error("the client does not read its events"));
    else if (unread === 0 && !over.aborted) stream.push(": still here\n\n");
  }, services.limits.heartbeatMs);
  const end = (): void => void stream.push(null);
  over.addEventListener("abort", end, { once: true });
  // send the position first: a client that disconnects before its first event can resume without loss
  stream.push(`retry: ${RETRY_MS}\nid: ${since}\n\n`);
  if (over.aborted) end();
  return stream;
}

/** Position to resume after; default: only new events */
function startAfter(query: EventsQuery, lastEventId: string | string[] | undefined, lastId: number): number {
  if (lastEventId === undefined) return query.since ?? lastId;
  if (typeof lastEventId !== "string" || !/^\d{1,15}$/.test(lastEventId))
    throw new ForkdError("BAD_REQUEST", "Cannot accept the request: Last-Event-ID: must be the id of an event.");
  return Number(lastEventId);
}

function matches(event: Event, query: EventsQuery): boolean {
  return (!query.types || query.types.includes(event.type)) && (query.sandbox === undefined || event.sandbox === query.sandbox);
}

function format(event: Event): string {
  return `id: ${event.id}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}
