// Tokens of the cluster.

import { routes } from "@forkd/daemon/api/routes";
import { allowsScope, checkGrant } from "@forkd/daemon/dispatch/auth";
import { parse } from "@forkd/daemon/dispatch/parse";
import { respond } from "@forkd/daemon/dispatch/respond";
import { notFound } from "@forkd/runtime/util/not-found";
import { projectOf, type Asked } from "./cluster.ts";
import { bodyOf, own, type Handler } from "./handler.ts";
import type { Changeable } from "../state/tokens.ts";

type TokenRoute = "listTokens" | "createToken" | "rotateToken" | "deleteToken";

export const tokenHandlers: Record<TokenRoute, Handler> = {
  listTokens: own((asked) => asked.cluster.tokens.list(projectOf(asked))),
  createToken: async (asked) => {
    const { cluster, exchange } = asked;
    const body = parse(routes.createToken.body, await bodyOf(asked), "body");
    const scope = exchange.identity?.scope;
    checkGrant(scope, body);
    const project = body.project ?? projectOf(asked);
    if (project !== projectOf(asked) && !allowsScope(scope ?? "read", "operator")) throw notFound("project", project, []);
    cluster.projects.get(project);
    await secret(asked, 201, await cluster.tokens.create({ ...body, project }));
  },
  rotateToken: async (asked) => secret(asked, 200, await asked.cluster.tokens.rotate(changeable(asked))),
  deleteToken: async (asked) => {
    await asked.cluster.tokens.revoke(changeable(asked));
    await respond(asked.exchange, { status: 204 });
  },
};

function changeable(asked: Asked): Changeable {
  const token = asked.cluster.tokens.get(asked.params["name"] ?? "", projectOf(asked));
  checkGrant(asked.exchange.identity?.scope, token.info);
  return token;
}

async function secret({ exchange }: Asked, status: number, body: unknown): Promise<void> {
  await respond(exchange, { status, body, headers: { "cache-control": "no-store" } });
}
