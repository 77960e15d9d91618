// REST front end of a gateway: the routes and scopes of a daemon, other handlers.

import { ForkdError } from "@forkd/runtime/errors";
import { routes } from "@forkd/daemon/api/routes";
import { authenticate, bearerOf } from "@forkd/daemon/dispatch/auth";
import { Router, type Found } from "@forkd/daemon/dispatch/router";
import { uiIdentity } from "@forkd/daemon/dispatch/ui-session";
import { handlers } from "./handlers.ts";
import { loginsOf } from "./ui.ts";
import type { RestRoute } from "./handler.ts";
import type { Route } from "@forkd/daemon/api/route";
import type { Exchange } from "@forkd/daemon/dispatch/exchange";
import type { FrontEnd, Work } from "@forkd/daemon/dispatch/front-end";
import type { Target } from "@forkd/daemon/dispatch/target";
import type { Cluster } from "./cluster.ts";

type Named = { name: RestRoute; route: Route };
type RestTarget = Extract<Target, { to: "rest" }>;

export function restFrontEnd(cluster: Cluster): FrontEnd<"rest"> {
  const router = new Router<Named>();
  for (const [name, route] of Object.entries<Route>(routes))
    if (route.method !== "ALL") router.add(route.method, route.path, { name: name as RestRoute, route });
  return {
    mayUpgrade: ({ path }) => {
      try {
        return router.some(path, ({ route }) => 101 in route.responses);
      } catch (error) {
        // malformed escapes: not an upgrade; the ordinary request then fails with BAD_REQUEST
        if (error instanceof ForkdError) return false;
        throw error;
      }
    },
    open: (exchange, target) => open(router, cluster, exchange, target),
  };
}

function open(router: Router<Named>, cluster: Cluster, exchange: Exchange, target: RestTarget): Work {
  const { method, request, transport } = exchange;
  const found = router.find(method, target.path) ?? (method === "HEAD" ? router.find("GET", target.path) : null);
  const { scope } = found?.route.route ?? { scope: "read" };
  return {
    label: found?.route.route.path ?? "unknown",
    path: target.path,
    snapshot: found?.params["tag"] ?? null,
    isProbe: scope === "none",
    statusOf: found?.route.route.statusOf,
    acrossProjects: found?.route.route.acrossProjects,
    sandbox: () => found?.params["id"] ?? null,
    admit: () => {
      const token = bearerOf(request.headers.authorization);
      const ui = token === undefined ? uiIdentity(exchange, loginsOf(cluster)) : null;
      const identity = ui ?? authenticate({ kind: transport.kind, remote: exchange.remote, token }, cluster);
      return { identity, scope: scope === "none" ? null : scope };
    },
    serve: async () => {
      if (!found) throw unknownPath(router, method, target.path);
      await serve(found, cluster, exchange, target.search);
    },
    refuse: ({ status, headers, problem }) => ({ status, headers, body: problem }),
  };
}

async function serve({ route: { name }, params }: Found<Named>, cluster: Cluster, exchange: Exchange, search: string): Promise<void> {
  await handlers[name]({ exchange, cluster, params, search });
}

function unknownPath(router: Router<Named>, method: string, path: string): ForkdError {
  const allow = router.methods(path);
  if (allow.length === 0) return new ForkdError("NOT_FOUND", "This path does not exist.", { hint: "spec/openapi.json lists all paths." });
  return new ForkdError("METHOD_NOT_ALLOWED", `Cannot ${method} this path: it takes ${allow.join(", ")}.`, { details: { allow } });
}
