// REST handlers: sandboxes.

import { Readable } from "node:stream";
import { ForkdError } from "@forkd/runtime/errors";
import { nextPage } from "../handler.ts";
import type { sandboxRoutes } from "../../api/sandbox.ts";
import type { Handlers } from "../handler.ts";

export const sandboxHandlers: Pick<Handlers, keyof typeof sandboxRoutes> = {
  listSandboxes: ({ query }, { services, caller }) => {
    const { items, nextCursor } = services.manager.sandboxes.list(query, caller);
    return { status: 200, body: items, ...nextPage(nextCursor) };
  },
  createSandboxes: async ({ body }, { services: { manager }, caller }) => {
    if (body.per_item) return { status: 207, body: await manager.sandboxes.createEach(body, caller) };
    return { status: 201, body: await manager.sandboxes.create(body, caller) };
  },
  deleteSandboxes: async ({ query }, { services, caller }) => {
    // a request without a filter must not end every sandbox by mistake
    if (query.tag === undefined && !query.all)
      throw new ForkdError("BAD_REQUEST", "Cannot end sandboxes: say which, with ?tag= or ?all=true.");
    const which = query.tag === undefined ? "all" : { tag: query.tag };
    return { status: 200, body: await services.manager.sandboxes.removeMany(which, caller) };
  },
  getSandbox: ({ params }, { services, caller }) => ({ status: 200, body: services.manager.sandboxes.get(params.id, caller) }),
  updateSandbox: async ({ params, body }, { services, caller }) => {
    const info = await services.manager.sandboxes.update(params.id, body, caller);
    if (body.rotate_access) {
      services.accessTokens.rotate(info.id);
      services.inFlight.abortOpened(info.id, new ForkdError("UNAUTHORIZED", "Cannot continue: the access token was replaced."));
    }
    return { status: 200, body: info };
  },
  deleteSandbox: async ({ params }, { services, caller }) => {
    await services.manager.sandboxes.remove(params.id, caller);
    return { status: 204 };
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
  getSandboxStats: async ({ params }, { services, caller }) => ({
    status: 200,
    body: await services.manager.sandboxes.stats(params.id, caller),
  }),
  getSandboxLogs: ({ params, query }, { services: { manager, daemon }, caller }) => {
    // check first: a missing sandbox must be an error response, not a stream that ends
    manager.sandboxes.get(params.id, caller);
    const signal = query.follow ? AbortSignal.any([caller.signal, daemon.stopping]) : caller.signal;
    return {
      status: 200,
      body: Readable.from(manager.execution.logs(params.id, query, { ...caller, signal })),
      headers: { "content-type": "text/plain; charset=utf-8" },
      flush: query.follow === true,
    };
  },
};
