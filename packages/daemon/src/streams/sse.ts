// Server-sent events.

import { pulledStream, type PulledOptions } from "./pulled-stream.ts";
import type { Readable } from "node:stream";

export type ServerEvent = { id?: string; event: string; data: object };

export const SSE_HEADERS = { "content-type": "text/event-stream", "cache-control": "no-store" };

export function wantsEvents(accept: string | undefined): boolean {
  return accept !== undefined && accept.toLowerCase().includes("text/event-stream");
}

type SseOptions = Omit<PulledOptions<ServerEvent>, "format" | "heartbeat" | "farewell">;

export function sseStream(events: AsyncIterable<ServerEvent>, opts: SseOptions): Readable {
  return pulledStream(events, { ...opts, format, heartbeat: ": still here\n\n" });
}

function format({ id, event, data }: ServerEvent): string {
  return `${id === undefined ? "" : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}
