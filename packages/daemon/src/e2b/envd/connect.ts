// Connect RPC: unary calls and server streams.

import { ForkdError } from "@forkd/runtime/errors";
import { readJson } from "../../streams/body.ts";
import { describeError, isGone } from "../../dispatch/problem.ts";
import { pulledStream } from "../../streams/pulled-stream.ts";
import { parse } from "../../dispatch/parse.ts";
import { connectError } from "../errors.ts";
import { ending, envelope, isStreamType, STREAM_TYPE, unwrapped } from "./envelope.ts";
import type { Readable } from "node:stream";
import type * as z from "zod";
import type { ErrorCode } from "@forkd/runtime/errors";
import type { Answer } from "../../dispatch/answer.ts";
import type { SandboxWork } from "../work.ts";

/** Default keep-alive interval; the client can set another */
const KEEPALIVE_SECS = 50;
const MAX_KEEPALIVE_SECS = 3600;
/** Timeouts from here on count as none */
const MAX_TIMEOUT_MS = 366 * 24 * 3_600_000;

/** Request message, plain or in an envelope; unknown fields are dropped */
export async function messageOf<T extends z.ZodType>({ call, request, services }: SandboxWork, schema: T): Promise<z.output<T>> {
  const isStream = isStreamType(call.contentType);
  const message = await readJson(request, services.limits, isStream ? unwrapped : undefined);
  return parse(schema, message ?? {}, "message");
}

type StreamOptions = {
  work: SandboxWork;
  keepalive: object;
  dropped?: AbortSignal;
  /** called when the response ends, also after a failure */
  close?: () => void;
};

/** Server stream: messages, keep-alives between them, and an end envelope */
export function streamAnswer(messages: AsyncIterable<object>, { work, keepalive, dropped, close }: StreamOptions): Answer {
  const { services, caller, request } = work;
  const asked = Number(request.headers["keepalive-ping-interval"]);
  const body: Readable = pulledStream<Buffer>(envelopes(messages), {
    format: (item) => item,
    heartbeat: envelope(keepalive),
    heartbeatMs: (asked > 0 ? Math.min(Math.max(asked, 1), MAX_KEEPALIVE_SECS) : KEEPALIVE_SECS) * 1000,
    over: AbortSignal.any([caller.signal, services.daemon.stopping]),
    farewell: ending({ code: "unavailable", message: "The daemon is stopping, or the token was revoked." }),
    dropped,
    onFailure: (error) => {
      const { problem } = describeError(error, caller, services);
      // break the connection: only then do clients check whether the sandbox still exists
      if (isGone(problem)) throw error;
      return ending(
        error instanceof DeadlineError ? deadline(error) : connectError({ code: problem.code as ErrorCode, message: problem.error }),
      );
    },
  });
  if (close) body.once("close", close);
  return { status: 200, body, headers: { "content-type": STREAM_TYPE }, flush: true };
}

/** The call exceeded its timeout */
export class DeadlineError extends ForkdError {
  constructor(message: string) {
    super("AGENT_TIMEOUT", message);
  }
}

/** Timeout that the client set for the call; undefined: none */
export function timeoutMsOf({ request }: SandboxWork): number | undefined {
  const ms = Number(request.headers["connect-timeout-ms"]);
  return ms > 0 && ms < MAX_TIMEOUT_MS ? ms : undefined;
}

function deadline({ message }: DeadlineError): { code: string; message: string } {
  return { code: "deadline_exceeded", message };
}

/** Not a generator: one that was never started skips its `finally`, and its source would stay open */
function envelopes(messages: AsyncIterable<object>): AsyncIterable<Buffer> {
  const iterator = messages[Symbol.asyncIterator]();
  let isOver = false;
  return {
    [Symbol.asyncIterator]: () => ({
      next: async () => {
        if (isOver) return { done: true, value: undefined };
        const step = await iterator.next();
        isOver = step.done === true;
        return { value: step.done === true ? ending() : envelope(step.value) };
      },
      return: async () => {
        await iterator.return?.();
        return { done: true, value: undefined };
      },
    }),
  };
}
