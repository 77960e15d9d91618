// The output of a process, resumed at its cursor after each lost connection.

import { sleep } from "./deadline.ts";
import { ConnectionError, errorOfProblem, ForkdError, InvalidRequestError, TimeoutError } from "./errors.ts";
import { parseJson, serverEventsOf } from "./streams.ts";
import type { Call, Client } from "./client.ts";
import type { OutputPlace } from "./options.ts";
import type { OutputLost, Problem, ProcessExit, ProcessStarted } from "./schema.gen.ts";

const MIN_WAIT_MS = 100;
const MAX_WAIT_MS = 3000;
/** Connections in a row without an event of the process: about ten seconds, enough to restart a daemon */
const MAX_TRIES = 8;
/** The daemon sends keep-alives more often than this */
const SILENCE_MS = 60_000;

/** One event of a process; `cursor` is the position after it */
export type ProcessStreamEvent = { cursor: string } & (
  | ({ type: "started" } & ProcessStarted)
  | { type: "stdout" | "stderr"; offset: number; bytes: Uint8Array }
  | ({ type: "lost" } & OutputLost)
  | ({ type: "exit" } & ProcessExit)
);

/** The first request, and the path of later ones, from the id of the process */
export type ProcessRequest = { method: "GET" | "POST"; path: string; call: Call; outputPath: (process: string) => string };

export async function* processEventsOf(client: Client, request: ProcessRequest, signal?: AbortSignal): AsyncGenerator<ProcessStreamEvent> {
  const over = signal ?? new AbortController().signal;
  const { follow } = request.call.query ?? {};
  let { method, path } = request;
  let call: Call = { ...request.call, query: { ...request.call.query, encoding: "base64" } };
  let isKnown = false;
  let tries = 0;
  for (;;) {
    let failure: Error | undefined;
    try {
      const headers = { accept: "text/event-stream", ...call.headers };
      for await (const { id, type, data } of serverEventsOf(
        client.stream(method, path, { ...call, headers, signal: over, timeoutMs: SILENCE_MS }),
      )) {
        const event = eventOf(type, id ?? "", parseJson(data));
        tries = 0;
        if (event.type === "started") {
          if (isKnown) continue;
          isKnown = true;
          path = request.outputPath(String(event.id));
        }
        method = "GET";
        call = { query: { encoding: "base64", follow }, headers: { "last-event-id": event.cursor } };
        yield event;
        if (event.type === "exit") return;
      }
      // the stream ended without an exit event: the daemon stopped. Without `follow` it is the end
      if (follow === "false" && isKnown) return;
    } catch (error) {
      if (over.aborted || !isKnown || !canReturn(error)) throw error;
      failure = error;
    }
    if (++tries > MAX_TRIES)
      throw failure ?? new ConnectionError("DAEMON_UNREACHABLE", "The daemon repeatedly ends the stream of the process.");
    await sleep(Math.min(MIN_WAIT_MS * 2 ** (tries - 1), MAX_WAIT_MS), over);
  }
}

/** The start position as query parameters */
export function placeOf(from?: OutputPlace): Record<string, string> {
  if (from === undefined || from === "start") return {};
  if (from === "now") return { stdout_from: "now", stderr_from: "now" };
  const [, stdout, stderr] = /^(\d+)-(\d+)$/.exec(from) ?? [];
  if (stdout === undefined || stderr === undefined)
    throw new InvalidRequestError("BAD_REQUEST", `${JSON.stringify(from)} is not a position in the output of a process.`, {
      hint: 'Use "start", "now", or the cursor of a process handle.',
    });
  return { stdout_from: stdout, stderr_from: stderr };
}

function eventOf(type: string, cursor: string, data: unknown): ProcessStreamEvent {
  switch (type) {
    case "started":
      return { type, cursor, ...(data as ProcessStarted) };
    case "stdout":
    case "stderr": {
      const { offset, base64 } = data as { offset: number; base64: string };
      return { type, cursor, offset, bytes: bytesOf(base64) };
    }
    case "lost":
      return { type, cursor, ...(data as OutputLost) };
    case "exit":
      return { type, cursor, ...(data as ProcessExit) };
    case "error":
      throw errorOfProblem(data as Problem);
    default:
      throw new ForkdError("BAD_ANSWER", `A process has no event of the type ${JSON.stringify(type)}.`);
  }
}

function bytesOf(base64: string): Uint8Array {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

function canReturn(error: unknown): error is Error {
  return error instanceof ConnectionError || error instanceof TimeoutError || (error instanceof ForkdError && error.status === 503);
}
