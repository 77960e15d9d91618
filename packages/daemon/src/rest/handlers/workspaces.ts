// REST handlers: workspaces.

import type { workspaceRoutes } from "../../api/workspace.ts";
import type { Handlers } from "../handler.ts";

export const workspaceHandlers: Pick<Handlers, keyof typeof workspaceRoutes> = {
  listWorkspaces: async (_input, { services, caller }) => ({ status: 200, body: await services.manager.workspaces.list(caller) }),
  createWorkspace: async ({ body }, { services, caller }) => ({
    status: 201,
    body: await services.manager.workspaces.create(body, caller),
  }),
  getWorkspace: async ({ params }, { services, caller }) => ({
    status: 200,
    body: await services.manager.workspaces.get(params.name, caller),
  }),
  deleteWorkspace: async ({ params }, { services, caller }) => {
    await services.manager.workspaces.remove(params.name, caller);
    return { status: 204 };
  },
  suspendWorkspace: async ({ params }, { services, caller }) => {
    return { status: 200, body: await services.manager.workspaces.suspend(params.name, caller) };
  },
  resumeWorkspace: async ({ params }, { services, caller }) => {
    return { status: 200, body: await services.manager.workspaces.resume(params.name, caller) };
  },
};
