// Calls of Connect: a message comes, and a message or a stream of them goes.

import { ForkdError } from "../../errors.ts";
import { readJson } from "../../http/body.ts";
import { describeError } from "../../http/problem.ts";
import { pulledStream } from "../../http/pulled-stream.ts";
import { parse } from "../../http/validate.ts";
import { connectError, isGone } from "../errors.ts";
import { ending, envelope, isStreamType, STREAM_TYPE, unwrapped } from "./envelope.ts";
import type { Readable } from "node:stream";
import type * as z from "zod";
import type { ErrorCode } from "../../errors.ts";
import type { AnyAnswer } from "../../http/handler.ts";
import type { SandboxWork } from "../work.ts";

/** Between two signs of life, unless the client says how often it wants them */
const KEEPALIVE_SECS = 50;
const MAX_KEEPALIVE_SECS = 3600;
/** Longer than this is for ever */
const MAX_TIMEOUT_MS = 366 * 24 * 3_600_000;

/** A message in the one form or the other; what the schema does not know is left out */
export async function messageOf<T extends z.ZodType>({ call, request, services }: SandboxWork, schema: T): Promise<z.output<T>> {
  const isStream = isStreamType(call.contentType);
  const message = await readJson(request, services.limits, isStream ? unwrapped : undefined);
  return parse(schema, message ?? {}, "message");
}

type StreamOptions = {
  work: SandboxWork;
  keepalive: object;
  dropped?: AbortSignal;
  /** told when the answer is over, however it ends */
  close?: () => void;
};

/** Messages as they come, signs of life between them, and how it ended */
export function streamAnswer(messages: AsyncIterable<object>, { work, keepalive, dropped, close }: StreamOptions): AnyAnswer {
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
      // its clients look whether a sandbox is still there when the connection breaks, and only then
      if (isGone(problem)) throw error;
      return ending(
        error instanceof DeadlineError ? deadline(error) : connectError({ code: problem.code as ErrorCode, message: problem.error }),
      );
    },
  });
  if (close) body.once("close", close);
  return { status: 200, body, headers: { "content-type": STREAM_TYPE }, flush: true };
}

/** What was to end after a time has been ended */
export class DeadlineError extends ForkdError {
  constructor(message: string) {
    super("AGENT_TIMEOUT", message);
  }
}

/** How long the client gives a call; undefined: as long as it takes */
export function timeoutMsOf({ request }: SandboxWork): number | undefined {
  const ms = Number(request.headers["connect-timeout-ms"]);
  return ms > 0 && ms < MAX_TIMEOUT_MS ? ms : undefined;
}

function deadline({ message }: DeadlineError): { code: string; message: string } {
  return { code: "deadline_exceeded", message };
}

/** No generator: one that nobody has begun to read would not let go of what it reads */
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
