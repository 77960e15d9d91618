// Projects and quotas of the cluster.

import { routes } from "@forkd/daemon/api/routes";
import { parse } from "@forkd/daemon/dispatch/parse";
import { respond } from "@forkd/daemon/dispatch/respond";
import { ForkdError } from "@forkd/runtime/errors";
import { GATEWAY } from "../nodes/signer.ts";
import { projectOf, type Asked } from "./cluster.ts";
import { bodyOf, own, type Handler } from "./handler.ts";

type ProjectRoute = "listProjects" | "createProject" | "updateProject" | "deleteProject" | "getQuota";

export const projectHandlers: Record<ProjectRoute, Handler> = {
  listProjects: own(({ cluster }) => cluster.projects.list()),
  createProject: async (asked) => {
    const { cluster, exchange } = asked;
    const made = await cluster.projects.create(parse(routes.createProject.body, await bodyOf(asked), "body"));
    await cluster.nodes.giveProjects();
    await respond(exchange, { status: 201, body: made });
  },
  updateProject: async (asked) => {
    const { cluster, exchange } = asked;
    const { name } = parse(routes.updateProject.params, asked.params, "params");
    const changed = await cluster.projects.update(name, parse(routes.updateProject.body, await bodyOf(asked), "body"));
    await cluster.nodes.giveProjects();
    await respond(exchange, { status: 200, body: changed });
  },
  deleteProject: async (asked) => {
    const { cluster, exchange } = asked;
    const { name } = parse(routes.deleteProject.params, asked.params, "params");
    cluster.projects.checkRemovable(name);
    await refuseOwner(asked, name);
    await cluster.projects.remove(name);
    await respond(exchange, { status: 204 });
  },
  getQuota: own(async (asked) => asked.cluster.quotas.use(projectOf(asked))),
};

/** Throws IN_USE with what the project owns. A node that does not answer may have something of it */
async function refuseOwner({ cluster }: Asked, project: string): Promise<void> {
  const tokens = cluster.tokens.list(project).map(({ name }) => name);
  if (tokens.length > 0)
    throw new ForkdError(
      "IN_USE",
      `Cannot remove project ${project}: it owns ${tokens.length} tokens (${tokens.slice(0, 3).join(", ")}).`,
      {
        hint: "Remove these first.",
        details: { owned: { tokens } },
      },
    );
  for (const node of cluster.nodes.all) cluster.places.reachable(node);
  try {
    for (const node of cluster.nodes.all) {
      const { status, body } = await node.ask("DELETE", `/v1/projects/${project}`, { as: GATEWAY });
      if (status < 300 || status === 404) continue;
      const { error, details } = body as { error: string; details?: Record<string, unknown> };
      throw new ForkdError("IN_USE", error, { hint: "Remove these first.", ...(details ? { details } : {}) });
    }
  } catch (error) {
    // nodes that have removed it get it again
    await cluster.nodes.giveProjects();
    throw error;
  }
}
