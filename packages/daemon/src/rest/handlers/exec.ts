// REST handlers: exec and eval.

import { ForkdError } from "@forkd/runtime/errors";
import { describeError } from "../../dispatch/problem.ts";
import { SSE_HEADERS, sseStream } from "../../streams/sse.ts";
import type { execRoutes } from "../../api/exec.ts";
import type { Handlers } from "../handler.ts";

export const execHandlers: Pick<Handlers, keyof typeof execRoutes> = {
  pingSandbox: async ({ params }, { services, caller }) => ({
    status: 200,
    body: await services.manager.execution.ping(params.id, caller),
  }),
  execCommand: async ({ params, body }, { services, caller }) => {
    return { status: 200, body: await services.manager.execution.exec(params.id, body, caller) };
  },
  evalCode: async ({ params, body }, { services, caller }) => {
    return { status: 200, body: await services.manager.execution.eval(params.id, body, caller) };
  },
  evalStream: ({ params, body }, { services, caller }) => {
    if (caller.remember) throw new ForkdError("BAD_REQUEST", "Cannot use Idempotency-Key here: a stream of events cannot be repeated.");
    // check first: a missing sandbox must be an error response, not a stream that ends
    services.manager.sandboxes.get(params.id, caller);
    const running = services.manager.execution.evalEvents(params.id, body, caller);
    const stream = sseStream(running.events, {
      heartbeatMs: services.limits.heartbeatMs,
      over: AbortSignal.any([caller.signal, services.daemon.stopping]),
      onFailure: (error) => ({ event: "error", data: describeError(error, caller, services).problem }),
    });
    // a generator that was never started skips its `finally`
    stream.once("close", () => running.close());
    return { status: 200, body: stream, headers: SSE_HEADERS, flush: true };
  },
};
