// The stream of events, resumed after each lost connection.

import { ConnectionError, ForkdError, TimeoutError } from "./errors.ts";
import { sleep } from "./deadline.ts";
import { parseJson, serverEventsOf } from "./streams.ts";
import type { Client } from "./client.ts";
import type { EventsOptions } from "./options.ts";
import type { Event } from "./schema.gen.ts";

const MIN_WAIT_MS = 100;
const MAX_WAIT_MS = 5000;
/** The daemon sends keep-alives more often than this */
const SILENCE_MS = 60_000;

export async function* eventsOf(client: Client, opts: EventsOptions): AsyncGenerator<Event> {
  const signal = opts.signal ?? new AbortController().signal;
  const query = { types: opts.types?.join(","), sandbox: opts.sandbox };
  let lastId = opts.since === undefined ? undefined : String(opts.since);
  // a position of a gateway is not a number
  let isPlaced = typeof opts.since === "string";
  let wasOpen = false;
  let waitMs = MIN_WAIT_MS;
  while (!signal.aborted) {
    try {
      const place = isPlaced && lastId ? { "last-event-id": lastId } : {};
      const since = isPlaced || typeof opts.since === "string" ? undefined : opts.since;
      const call = { query: { ...query, since }, headers: { accept: "text/event-stream", ...place }, signal, timeoutMs: SILENCE_MS };
      const onOpen = (): void => {
        wasOpen = true;
        isPlaced = true;
        waitMs = MIN_WAIT_MS;
      };
      for await (const { id, data } of serverEventsOf(client.stream("GET", "/v1/events", call, { onOpen }))) {
        lastId = id ?? lastId;
        if (id !== undefined) opts.onPosition?.(id);
        if (data !== "") yield parseJson(data) as Event;
      }
      // An event stream has no end of its own: the daemon stopped, and may be started again.
    } catch (error) {
      if (signal.aborted) return;
      if (!wasOpen || !canReturn(error)) throw error;
    }
    try {
      await sleep(waitMs, signal);
    } catch {
      return; // sleep rejects only when the signal aborts
    }
    waitMs = Math.min(waitMs * 2, MAX_WAIT_MS);
  }
}

function canReturn(error: unknown): boolean {
  return error instanceof ConnectionError || error instanceof TimeoutError || (error instanceof ForkdError && error.status === 503);
}
