// REST handlers: processes.

import { ForkdError } from "@forkd/runtime/errors";
import { readPieces } from "../../streams/body.ts";
import { describeError } from "../../dispatch/problem.ts";
import { placeOf, processEvents } from "../process-events.ts";
import { serveProcess } from "../process-socket.ts";
import { SSE_HEADERS, sseStream, wantsEvents } from "../../streams/sse.ts";
import type { Readable } from "node:stream";
import type { processRoutes } from "../../api/process.ts";
import type { WatchedProcess } from "../../service/processes.ts";
import type { Context, Handlers } from "../handler.ts";

export const processHandlers: Pick<Handlers, keyof typeof processRoutes> = {
  startProcess: async ({ params, query, body }, context) => {
    const { services, caller, headers } = context;
    const { processes } = services.manager;
    if (!wantsEvents(headers.accept)) return { status: 201, body: await processes.start(params.id, body, caller) };
    if (caller.remember) throw new ForkdError("BAD_REQUEST", "Cannot use Idempotency-Key here: a stream of events cannot be repeated.");
    const process = await processes.startWatched(params.id, body, caller);
    return { status: 200, body: eventsOf(process, query.encoding, context), headers: SSE_HEADERS, flush: true };
  },
  listProcesses: async ({ params }, { services, caller }) => ({
    status: 200,
    body: await services.manager.processes.list(params.id, caller),
  }),
  streamProcess: ({ params }, context) => ({
    status: 101,
    body: async (upgrade, signal) => serveProcess(upgrade, { id: params.id, context, signal }),
  }),
  getProcess: async ({ params }, { services, caller }) => {
    return { status: 200, body: await services.manager.processes.get(params.id, params.process, caller) };
  },
  killProcess: async ({ params }, { services, caller }) => {
    await services.manager.processes.kill(params.id, params.process, caller);
    return { status: 204 };
  },
  watchProcess: async ({ params, query }, context) => {
    const from = { ...placeOf(query, context.headers["last-event-id"]), follow: query.follow };
    const process = await context.services.manager.processes.watch(params.id, params.process, from, context.caller);
    return { status: 200, body: eventsOf(process, query.encoding, context), headers: SSE_HEADERS, flush: true };
  },
  writeStdin: async ({ params, query, body }, { services, caller }) => {
    const content = readPieces(body, { ...services.limits, uploadBytesPerSec: 0 });
    await services.manager.processes.write(params.id, params.process, content, { close: query.close === true }, caller);
    return { status: 204 };
  },
  signalProcess: async ({ params, body }, { services, caller }) => {
    await services.manager.processes.signal(params.id, params.process, body, caller);
    return { status: 204 };
  },
  resizeProcess: async ({ params, body }, { services, caller }) => {
    await services.manager.processes.resize(params.id, params.process, body, caller);
    return { status: 204 };
  },
};

function eventsOf(process: WatchedProcess, encoding: "utf8" | "base64", { services, caller }: Context): Readable {
  const stream = sseStream(processEvents(process, encoding), {
    heartbeatMs: services.limits.heartbeatMs,
    over: AbortSignal.any([caller.signal, services.daemon.stopping]),
    dropped: process.dropped,
    onFailure: (error) => ({ event: "error", data: describeError(error, caller, services).problem }),
  });
  // a generator that was never started skips its `finally`
  stream.once("close", () => process.close());
  return stream;
}
