// REST handlers: logins to the dashboard.

import { ForkdError } from "@forkd/runtime/errors";
import { linkTo, scopeOfLink } from "../../dispatch/ui-session.ts";
import { isLocal } from "../../service/caller.ts";
import type { uiRoutes } from "../../api/ui.ts";
import type { Handlers } from "../handler.ts";

/** Addresses that this machine's browsers reach as forkd.localhost */
const LOOPBACK = new Set(["127.0.0.1", "[::1]", "localhost", "0.0.0.0", "[::]"]);

export const uiHandlers: Pick<Handlers, keyof typeof uiRoutes> = {
  createUiLink: async ({ body }, { services, caller, headers }) => {
    const { daemon, uiSessions } = services;
    const scope = scopeOfLink(caller, body.scope);
    const host = isLocal(caller) ? browserHost(await daemon.listenForBrowsers(), daemon.tls) : (headers.host ?? "");
    const { principal, project } = caller;
    const { code, expiresAtUnix } = uiSessions.createLink({ principal, project, scope }, body.session_secs);
    const url = linkTo(host, code, daemon.tls);
    const made = { url, project, scope, expires_at_unix: expiresAtUnix, session_secs: body.session_secs };
    return { status: 201, body: made, headers: { "cache-control": "no-store" } };
  },

  deleteUiSessions: (_input, { services: { uiSessions, inFlight }, caller }) => {
    const reason = new ForkdError("UNAUTHORIZED", "Cannot continue: the browser was logged out.");
    for (const { id } of uiSessions.endAll(caller.project)) inFlight.abortSession(id, reason);
    return { status: 204 };
  },
};

/**
 * A name of its own on the loopback interface: browsers send cookies to all ports of a host, and a guest's server may
 * be on another port of localhost
 */
function browserHost(bind: string, isTls: boolean): string {
  const [, host = "", port = ""] = /^(.*):(\d+)$/.exec(bind) ?? [];
  if (!LOOPBACK.has(host)) return bind;
  // a certificate rarely has the name forkd.localhost
  return `${isTls ? "localhost" : "forkd.localhost"}:${port}`;
}
