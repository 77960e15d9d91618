// The dashboard of a gateway: the daemon's own front end, with logins of the cluster.

import { routes } from "@forkd/daemon/api/routes";
import { parse } from "@forkd/daemon/dispatch/parse";
import { respond } from "@forkd/daemon/dispatch/respond";
import { linkTo, scopeOfLink, type UiLogins } from "@forkd/daemon/dispatch/ui-session";
import { Ui } from "@forkd/daemon/ui/ui";
import { projectOf, type Cluster } from "./cluster.ts";
import { bodyOf, type Handler } from "./handler.ts";
import type { FrontEnd } from "@forkd/daemon/dispatch/front-end";
import type { InFlight } from "@forkd/daemon/dispatch/in-flight";

export function uiFrontEnd(cluster: Cluster, inFlight: Pick<InFlight, "abortSession">): FrontEnd<"ui"> {
  const { failures, limits, tokens, logins, self } = cluster;
  const { daemon } = loginsOf(cluster);
  const own = { store: daemon.store, version: self.version };
  return new Ui({ failures, limits, inFlight, tokens, uiSessions: logins, daemon: own, isCluster: true });
}

/** What the check of a cookie needs */
export function loginsOf({ logins, tokens }: Pick<Cluster, "logins" | "tokens">): UiLogins {
  const store = {
    get id() {
      return logins.id;
    },
  };
  return { daemon: { store }, tokens, uiSessions: logins };
}

export const uiHandlers: Record<"createUiLink" | "deleteUiSessions", Handler> = {
  createUiLink: async (asked) => {
    const { cluster, exchange } = asked;
    const { identity, request } = exchange;
    const body = parse(routes.createUiLink.body, await bodyOf(asked), "body");
    const scope = scopeOfLink({ scope: identity?.scope, session: identity?.session }, body.scope);
    const project = projectOf(asked);
    const login = { principal: identity?.name ?? "", project, scope };
    const { code, expiresAtUnix } = await cluster.logins.createLink(login, body.session_secs);
    const url = linkTo(request.headers.host ?? cluster.self.bind, code, cluster.self.tls);
    const made = { url, project, scope, expires_at_unix: expiresAtUnix, session_secs: body.session_secs };
    await respond(exchange, { status: 201, body: made, headers: { "cache-control": "no-store" } });
  },
  deleteUiSessions: async (asked) => {
    await asked.cluster.logins.endAll(projectOf(asked));
    await respond(asked.exchange, { status: 204 });
  },
};
