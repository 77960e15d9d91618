// REST handlers: branches.

import type { branchRoutes } from "../../api/branch.ts";
import type { Handlers } from "../handler.ts";

export const branchHandlers: Pick<Handlers, keyof typeof branchRoutes> = {
  branchSandbox: async ({ params, body }, { services, caller }) => {
    const { info, waited } = await services.manager.branches.branch(params.id, body, caller);
    return { status: waited ? 201 : 202, body: info };
  },
  forkSandbox: async ({ params, body }, { services, caller }) => {
    return { status: 201, body: await services.manager.branches.fork(params.id, body, caller) };
  },
};
