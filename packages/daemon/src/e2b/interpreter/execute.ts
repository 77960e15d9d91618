// Code execution; output and results are streamed as NDJSON.

import * as z from "zod";
import { env } from "../../api/common.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { pulledStream } from "../../streams/pulled-stream.ts";
import { bodyOf, type SandboxWork } from "../work.ts";
import { contextOf, liveContext } from "./contexts.ts";
import { dedented } from "./dedent.ts";
import { executionLines, lineOf } from "./lines.ts";
import type { Answer } from "../../dispatch/answer.ts";

const KEEPALIVE_MS = 5000;
/** Upper bound only: clients have their own timeouts and interrupt by closing the connection */
const LONGEST_SECS = 24 * 3600;

const executeRequest = z.object({
  code: z.string().max(8 * 1024 * 1024),
  context_id: z.string().nullish(),
  language: z.string().nullish(),
  env_vars: env.nullish(),
});

export async function execute(work: SandboxWork): Promise<Answer> {
  const { sandbox, services, caller } = work;
  const { code, context_id: given, language, env_vars: variables } = await bodyOf(work, executeRequest);
  if (given && language) throw new ForkdError("BAD_REQUEST", "Only one of context_id or language can be provided");
  const context = given ? await liveContext(work, given) : await contextOf(work, language ?? "python");
  const text = context.language === "python" ? dedented(code) : code;
  const request = { code: text, context: context.id, timeout_secs: LONGEST_SECS, ...(variables ? { env: variables } : {}) };
  const running = services.manager.execution.evalEvents(sandbox.id, request, caller);
  const stream = pulledStream(executionLines(running.events), {
    format: lineOf,
    heartbeatMs: KEEPALIVE_MS,
    heartbeat: lineOf({ type: "keepalive" }),
    over: AbortSignal.any([caller.signal, services.daemon.stopping]),
    onFailure: (error) => {
      // break the connection: the client then checks whether the sandbox still exists
      throw error;
    },
  });
  // a generator that was never started skips its `finally`
  stream.once("close", () => running.close());
  return { status: 200, headers: { "content-type": "application/x-ndjson" }, body: stream, flush: true };
}
