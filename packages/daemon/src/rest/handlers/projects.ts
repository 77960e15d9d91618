// REST handlers: projects and quotas.

import type { projectRoutes } from "../../api/project.ts";
import type { Handlers } from "../handler.ts";

export const projectHandlers: Pick<Handlers, keyof typeof projectRoutes> = {
  listProjects: (_input, { services }) => ({ status: 200, body: services.projects.list() }),
  createProject: ({ body }, { services }) => ({ status: 201, body: services.projects.create(body) }),
  updateProject: ({ params, body }, { services }) => ({ status: 200, body: services.projects.update(params.name, body) }),
  deleteProject: async ({ params }, { services }) => {
    const { name } = params;
    services.projects.checkRemovable(name);
    const tokens = services.tokens.list(name).map((token) => token.name);
    await services.manager.refuseOwner(name, tokens);
    services.projects.remove(name);
    return { status: 204 };
  },
  getQuota: (_input, { services, caller }) => ({ status: 200, body: services.manager.quotas.use(caller.project) }),
};
