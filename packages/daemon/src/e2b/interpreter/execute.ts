// Code that is run, and what comes of it, a line of JSON each.

import * as z from "zod";
import { env } from "../../api/common.ts";
import { ForkdError } from "../../errors.ts";
import { pulledStream } from "../../http/pulled-stream.ts";
import { bodyOf, type SandboxWork } from "../work.ts";
import { contextOf, liveContext } from "./contexts.ts";
import { executionLines, lineOf } from "./lines.ts";
import type { AnyAnswer } from "../../http/handler.ts";

const KEEPALIVE_MS = 5000;
/** Clients have time-outs of their own, and interrupt by going away */
const LONGEST_SECS = 24 * 3600;

const executeRequest = z.object({
  code: z.string().max(8 * 1024 * 1024),
  context_id: z.string().nullish(),
  language: z.string().nullish(),
  env_vars: env.nullish(),
});

export async function execute(work: SandboxWork): Promise<AnyAnswer> {
  const { sandbox, services, caller } = work;
  const { code, context_id: given, language, env_vars: variables } = await bodyOf(work, executeRequest);
  if (given && language) throw new ForkdError("BAD_REQUEST", "Only one of context_id or language can be provided");
  const context = given ? await liveContext(work, given) : await contextOf(work, language ?? "python");
  const request = { code, context, timeout_secs: LONGEST_SECS, ...(variables ? { env: variables } : {}) };
  const running = services.manager.inside.evalEvents(sandbox.id, request, caller);
  const stream = pulledStream(executionLines(running.events), {
    format: lineOf,
    heartbeatMs: KEEPALIVE_MS,
    heartbeat: lineOf({ type: "keepalive" }),
    over: AbortSignal.any([caller.signal, services.daemon.stopping]),
    onFailure: (error) => {
      // of a sandbox that has gone, the connection breaks, and its client asks why
      throw error;
    },
  });
  // a generator that nobody has begun to read runs no `finally`
  stream.once("close", () => running.close());
  return { status: 200, headers: { "content-type": "application/x-ndjson" }, body: stream, flush: true };
}
