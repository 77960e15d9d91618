// REST handlers: hubs.

import type { hubRoutes } from "../../api/hub.ts";
import type { Handlers } from "../handler.ts";

export const hubHandlers: Pick<Handlers, keyof typeof hubRoutes> = {
  pushSnapshot: async ({ params, body }, { services, caller }) => ({
    status: 201,
    body: await services.manager.hub.push(params.tag, body, caller),
  }),
  pullSnapshot: async ({ body }, { services, caller }) => ({ status: 201, body: await services.manager.hub.pull(body, caller) }),
  listHub: async ({ query }, { services, caller }) => ({ status: 200, body: await services.manager.hub.list(query, caller) }),
};
