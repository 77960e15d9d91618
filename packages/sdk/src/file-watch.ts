// A watch on files of a sandbox.

import { errorOfProblem, ForkdError } from "./errors.ts";
import { parseJson, serverEventsOf } from "./streams.ts";
import type { Client } from "./client.ts";
import type { FileEvent } from "./schema.gen.ts";
import type { QueryValues } from "./wire.ts";

/** The daemon sends keep-alives more often than this */
const SILENCE_MS = 60_000;

/**
 * Changes of files, to be iterated once. The watch ends when it is closed, or when the watched path is removed. A lost connection is an
 * error, because changes may have been missed.
 *
 * @example
 * ```ts
 * await using watch = await sandbox.files.watch("/srv", { recursive: true });
 * for await (const { type, path } of watch) console.log(type, path);
 * ```
 */
export class FileWatch implements AsyncIterable<FileEvent>, AsyncDisposable {
  private readonly events: AsyncGenerator<FileEvent>;
  private readonly end: AbortController;

  private constructor(events: AsyncGenerator<FileEvent>, end: AbortController) {
    this.events = events;
    this.end = end;
  }

  /** Resolves when the guest watches */
  static async open(client: Client, route: string, query: QueryValues, signal: AbortSignal | undefined): Promise<FileWatch> {
    signal?.throwIfAborted();
    const end = new AbortController();
    const abort = (): void => end.abort(signal?.reason);
    signal?.addEventListener("abort", abort, { once: true });
    const events = eventsOf(client, route, query, end.signal);
    const watch = new FileWatch(events, end);
    const first = await events.next();
    if (first.done !== true) return watch;
    signal?.throwIfAborted();
    throw new ForkdError("BAD_ANSWER", "The watch ended before it began.");
  }

  /** Ends the watch; a waiting iteration ends without an error */
  async close(): Promise<void> {
    this.end.abort(new ForkdError("CANCELLED", "The watch was closed."));
    await this.events.return(undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  [Symbol.asyncIterator](): AsyncIterator<FileEvent> {
    return this.events;
  }
}

async function* eventsOf(client: Client, route: string, query: QueryValues, signal: AbortSignal): AsyncGenerator<FileEvent> {
  try {
    const call = { query, headers: { accept: "text/event-stream" }, signal, timeoutMs: SILENCE_MS };
    for await (const { data } of serverEventsOf(client.stream("GET", route, call))) {
      const event = parseJson(data) as FileEvent;
      if (event.type === "error")
        throw errorOfProblem({ error: "The watch ended.", code: "UNKNOWN", hint: "", request_id: "", ...event.problem });
      yield event;
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}
