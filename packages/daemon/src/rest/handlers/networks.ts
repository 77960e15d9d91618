// REST handlers: network policies.

import type { networkRoutes } from "../../api/network.ts";
import type { Handlers } from "../handler.ts";

export const networkHandlers: Pick<Handlers, keyof typeof networkRoutes> = {
  getNetwork: ({ params }, { services, caller }) => ({ status: 200, body: services.manager.networks.get(params.id, caller) }),
  setNetwork: async ({ params, body }, { services, caller }) => {
    return { status: 200, body: await services.manager.networks.set(params.id, body, caller) };
  },
};
