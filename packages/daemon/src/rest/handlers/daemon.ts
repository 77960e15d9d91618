// REST handlers: the daemon itself.

import { buildOpenapi } from "../../api/openapi.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { notFound } from "@forkd/runtime/util/not-found";
import { EVERY_PROJECT } from "../../store/project-names.ts";
import { openEvents } from "../events.ts";
import { originOf } from "../../dispatch/proxy-domain.ts";
import { checkGrant } from "../../dispatch/auth.ts";
import type { daemonRoutes } from "../../api/daemon.ts";
import type { Handlers } from "../handler.ts";

let openapi: { openapi: string } | undefined;

export const daemonHandlers: Pick<Handlers, keyof typeof daemonRoutes> = {
  getHealth: () => ({ status: 200, body: { ok: true } }),

  getReadiness: (_input, { services }) => {
    const reason = services.daemon.stopping.aborted ? "stopping" : null;
    return { status: reason === null ? 200 : 503, body: { ready: reason === null, reason } };
  },

  getVersion: (_input, { services }) => ({ status: 200, body: { version: services.daemon.version, api: "v1" } }),

  getMetrics: async (_input, { services: { metrics }, caller }) => {
    const project = caller.isOperator ? EVERY_PROJECT : caller.project;
    return { status: 200, body: await metrics.text(project), headers: { "content-type": metrics.contentType } };
  },

  getOpenapi: () => {
    openapi ??= buildOpenapi() as { openapi: string };
    return { status: 200, body: openapi };
  },

  getStatus: async (_input, { services, caller }) => {
    const { socket, bind, tls, startedAtMs } = services.daemon;
    const own = { socket, bind, tls, proxy_url: originOf(services), pid: process.pid };
    const uptimeSecs = Math.round(Date.now() - startedAtMs) / 1000;
    return { status: 200, body: { ...(await services.manager.status(caller)), ...own, uptime_secs: uptimeSecs } };
  },

  getConfig: (_input, { services }) => ({ status: 200, body: services.config.entries }),

  stopDaemon: ({ body }, { services: { daemon }, caller }) => {
    const opts = { killSandboxes: body.kill_sandboxes };
    if (body.if_idle) daemon.stopIfIdle(opts, caller.signal);
    else daemon.stop(opts);
    return { status: 202 };
  },

  collectGarbage: async ({ body }, { services }) => ({ status: 200, body: await services.manager.gc({ dryRun: body.dry_run }) }),

  getEvents: ({ query }, { services, headers, caller: { signal, project } }) => ({
    status: 200,
    body: openEvents({ query, project, lastEventId: headers["last-event-id"], signal }, services),
    headers: { "content-type": "text/event-stream", "cache-control": "no-store" },
    flush: true,
  }),

  getTree: async (_input, { services, caller }) => ({ status: 200, body: await services.manager.tree(caller) }),
  getStats: async (_input, { services, caller }) => ({ status: 200, body: await services.manager.stats(caller) }),

  getHistory: (_input, { services }) => ({ status: 200, body: services.metrics.history.show() }),

  listTokens: (_input, { services, caller }) => ({ status: 200, body: services.tokens.list(caller.project) }),
  createToken: ({ body }, { services, caller }) => {
    checkGrant(caller.scope, body);
    const project = body.project ?? caller.project;
    if (project !== caller.project && !caller.isOperator) throw notFound("project", project, []);
    services.projects.get(project);
    return { status: 201, body: services.tokens.create({ ...body, project }), headers: { "cache-control": "no-store" } };
  },
  rotateToken: ({ params }, { services, caller }) => {
    checkGrant(caller.scope, services.tokens.get(params.name, caller.project));
    const { principal, ...body } = services.tokens.rotate(params.name, caller.project);
    services.inFlight.abortOf(principal, new ForkdError("UNAUTHORIZED", "Cannot continue: the token was replaced."));
    return { status: 200, body, headers: { "cache-control": "no-store" } };
  },
  deleteToken: ({ params }, { services, caller }) => {
    checkGrant(caller.scope, services.tokens.get(params.name, caller.project));
    const principal = services.tokens.revoke(params.name, caller.project);
    services.inFlight.abortOf(principal, new ForkdError("UNAUTHORIZED", "Cannot continue: the token was revoked."));
    return { status: 204 };
  },
};
