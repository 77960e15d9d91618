// Handlers of running sandboxes.

import { Readable } from "node:stream";
import { ForkdError } from "../../errors.ts";
import { nextPage } from "../handler.ts";
import { describeError } from "../problem.ts";
import { SSE_HEADERS, sseStream } from "../sse.ts";
import type { sandboxRoutes } from "../../api/routes/sandboxes.ts";
import type { Handlers } from "../handler.ts";

export const sandboxHandlers: Pick<Handlers, keyof typeof sandboxRoutes> = {
  listSandboxes: ({ query }, { services }) => {
    const { items, nextCursor } = services.manager.sandboxes.list(query);
    return { status: 200, body: items, ...nextPage(nextCursor) };
  },
  createSandboxes: async ({ body }, { services: { manager }, caller }) => {
    if (body.per_item) return { status: 207, body: await manager.sandboxes.createEach(body, caller) };
    return { status: 201, body: await manager.sandboxes.create(body, caller) };
  },
  deleteSandboxes: async ({ query }, { services, caller }) => {
    // a filter that was forgotten must not end everything
    if (query.tag === undefined && !query.all)
      throw new ForkdError("BAD_REQUEST", "Cannot end sandboxes: say which, with ?tag= or ?all=true.");
    return { status: 200, body: await services.manager.sandboxes.removeMany(query, caller) };
  },
  getSandbox: ({ params }, { services }) => ({ status: 200, body: services.manager.sandboxes.get(params.id) }),
  updateSandbox: async ({ params, body }, { services, caller }) => {
    return { status: 200, body: await services.manager.sandboxes.update(params.id, body, caller) };
  },
  deleteSandbox: async ({ params }, { services, caller }) => {
    await services.manager.sandboxes.remove(params.id, caller);
    return { status: 204 };
  },

  pingSandbox: async ({ params }, { services }) => ({ status: 200, body: await services.manager.inside.ping(params.id) }),
  execCommand: async ({ params, body }, { services, caller }) => {
    return { status: 200, body: await services.manager.inside.exec(params.id, body, caller) };
  },
  evalCode: async ({ params, body }, { services, caller }) => {
    return { status: 200, body: await services.manager.inside.eval(params.id, body, caller) };
  },
  evalStream: ({ params, body }, { services, caller }) => {
    if (caller.remember) throw new ForkdError("BAD_REQUEST", "Cannot use Idempotency-Key here: a stream of events cannot be repeated.");
    // asked first, so that a sandbox that does not exist is an error and not the end of a stream
    services.manager.sandboxes.get(params.id);
    const running = services.manager.inside.evalEvents(params.id, body, caller);
    const stream = sseStream(running.events, {
      heartbeatMs: services.limits.heartbeatMs,
      over: AbortSignal.any([caller.signal, services.daemon.stopping]),
      onFailure: (error) => ({ event: "error", data: describeError(error, caller, services).problem }),
    });
    // a generator that nobody has begun to read runs no `finally`
    stream.once("close", () => running.close());
    return { status: 200, body: stream, headers: SSE_HEADERS, flush: true };
  },
  branchSandbox: async ({ params, body }, { services, caller }) => {
    const { info, waited } = await services.manager.branches.branch(params.id, body, caller);
    return { status: waited ? 201 : 202, body: info };
  },
  forkSandbox: async ({ params, body }, { services, caller }) => {
    return { status: 201, body: await services.manager.branches.fork(params.id, body, caller) };
  },
  pauseSandbox: async ({ params }, { services, caller }) => {
    return { status: 200, body: await services.manager.sandboxes.pause(params.id, caller) };
  },
  suspendSandbox: async ({ params }, { services, caller }) => {
    return { status: 200, body: await services.manager.suspension.suspend(params.id, caller) };
  },
  resumeSandbox: async ({ params }, { services, caller }) => {
    return { status: 200, body: await services.manager.suspension.resume(params.id, caller) };
  },
  getSandboxStats: async ({ params }, { services }) => ({ status: 200, body: await services.manager.sandboxes.stats(params.id) }),

  getNetwork: ({ params }, { services }) => ({ status: 200, body: services.manager.networks.get(params.id) }),
  setNetwork: async ({ params, body }, { services, caller }) => {
    return { status: 200, body: await services.manager.networks.set(params.id, body, caller) };
  },

  getSandboxLogs: ({ params, query }, { services: { manager, daemon }, caller }) => {
    // asked first, so that a sandbox that does not exist is an error and not the end of a stream
    manager.sandboxes.get(params.id);
    const signal = query.follow ? AbortSignal.any([caller.signal, daemon.stopping]) : caller.signal;
    return {
      status: 200,
      body: Readable.from(manager.inside.logs(params.id, query, signal)),
      headers: { "content-type": "text/plain; charset=utf-8" },
      flush: query.follow === true,
    };
  },
};
