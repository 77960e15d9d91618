// REST handlers: interpreter contexts.

import type { contextRoutes } from "../../api/contexts.ts";
import type { Handlers } from "../handler.ts";

export const contextHandlers: Pick<Handlers, keyof typeof contextRoutes> = {
  listContexts: async ({ params }, { services, caller }) => ({
    status: 200,
    body: await services.manager.contexts.list(params.id, caller),
  }),
  createContext: async ({ params, body }, { services, caller }) => {
    return { status: 201, body: await services.manager.contexts.create(params.id, body, caller) };
  },
  deleteContext: async ({ params }, { services, caller }) => {
    await services.manager.contexts.remove(params.id, params.context, caller);
    return { status: 204 };
  },
  restartContext: async ({ params }, { services, caller }) => {
    return { status: 200, body: await services.manager.contexts.restart(params.id, params.context, caller) };
  },
  interruptContext: async ({ params }, { services, caller }) => {
    await services.manager.contexts.interrupt(params.id, params.context, caller);
    return { status: 204 };
  },
};
