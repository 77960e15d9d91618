// REST front end: routing, validation, handlers and idempotency for the routes in api/.

import { parse as parseQuery } from "node:querystring";
import { ForkdError } from "@forkd/runtime/errors";
import { routes } from "../api/routes.ts";
import { authenticate, bearerOf } from "../dispatch/auth.ts";
import { describeError } from "../dispatch/problem.ts";
import { respond, sendLines, wantsLines } from "../dispatch/respond.ts";
import { Router, type Found } from "../dispatch/router.ts";
import { uiIdentity } from "../dispatch/ui-session.ts";
import { upgradeRequired } from "../dispatch/upgrade.ts";
import { readJson } from "../streams/body.ts";
import { handlers } from "./handlers/all.ts";
import { hashRequest, keyOf, type Idempotency } from "./idempotency.ts";
import { validate } from "./validate.ts";
import type { Progress } from "@forkd/runtime/util/progress";
import type { Problem } from "../api/common.ts";
import type { Route } from "../api/route.ts";
import type { Answer } from "../dispatch/answer.ts";
import type { Exchange } from "../dispatch/exchange.ts";
import type { FrontEnd, Work } from "../dispatch/front-end.ts";
import type { Services } from "../dispatch/services.ts";
import type { Target } from "../dispatch/target.ts";
import type { Context, RestRoute } from "./handler.ts";

type Named = { name: RestRoute; route: Route };
type RestTarget = Extract<Target, { to: "rest" }>;

export class Rest implements FrontEnd<"rest"> {
  readonly #services: Services;
  readonly #idempotency: Idempotency;
  readonly #router = new Router<Named>();

  constructor(services: Services, idempotency: Idempotency) {
    this.#services = services;
    this.#idempotency = idempotency;
    // "ALL" is the proxy's route, which has its own front end
    for (const [name, route] of Object.entries<Route>(routes))
      if (route.method !== "ALL") this.#router.add(route.method, route.path, { name: name as RestRoute, route });
  }

  mayUpgrade({ path }: RestTarget): boolean {
    try {
      return this.#router.some(path, ({ route }) => 101 in route.responses);
    } catch (error) {
      // malformed escapes: not an upgrade; the ordinary request then fails with BAD_REQUEST
      if (error instanceof ForkdError) return false;
      throw error;
    }
  }

  open(exchange: Exchange, target: RestTarget): Work {
    const { method } = exchange;
    const found = this.#router.find(method, target.path) ?? (method === "HEAD" ? this.#router.find("GET", target.path) : null);
    const common = { path: target.path, refuse: asProblem };
    const identify = (): ReturnType<typeof authenticate> => {
      const { transport, remote, request } = exchange;
      const token = bearerOf(request.headers.authorization);
      const { stated } = exchange;
      const ui = transport.kind === "tcp" && token === undefined && !stated ? uiIdentity(exchange, this.#services) : null;
      return ui ?? authenticate({ kind: transport.kind, remote, token, stated }, this.#services);
    };
    if (!found) {
      return {
        ...common,
        label: "unknown",
        snapshot: null,
        isProbe: false,
        sandbox: () => null,
        // unauthenticated clients must not learn which paths exist
        admit: () => ({ identity: identify(), scope: "read" }),
        serve: async () => {
          throw this.#unknownPath(method, target.path);
        },
      };
    }
    const { route } = found.route;
    const { scope } = route;
    return {
      ...common,
      label: route.path,
      snapshot: found.params["tag"] ?? null,
      isProbe: scope === "none",
      statusOf: route.statusOf,
      acrossProjects: route.acrossProjects,
      sandbox: () => found.params["id"] ?? null,
      admit: () => ({ identity: identify(), scope: scope === "none" ? null : scope }),
      serve: async () => this.#serve(exchange, found, target.search),
    };
  }

  async #serve(exchange: Exchange, { route: { name, route }, params }: Found<Named>, search: string): Promise<void> {
    const { request, signal } = exchange;
    const body = await bodyOf(exchange, route, this.#services);
    // aborted while the body was read. CANCELLED: a client that only closed its sending side still gets the response
    if (signal.aborted && (signal.reason as ForkdError).code !== "CANCELLED") throw signal.reason as ForkdError;
    const input = validate(route, { params, query: parseQuery(search, "&", "=", { maxKeys: 0 }), body });
    // the upgrade is optional when the route has another response
    if (101 in route.responses && !request.upgraded && Object.keys(route.responses).length === 1) throw upgradeRequired();
    const { caller } = exchange;
    // handlers are typed per route; the lookup by name loses the type
    const handler = handlers[name] as (input: unknown, context: Context) => Answer | Promise<Answer>;
    const context = { services: this.#services, headers: request.headers, isFromGateway: exchange.isFromGateway };
    const key = route.method === "POST" ? keyOf(name, request.headers["idempotency-key"]) : null;
    const work = async (progress?: Progress): Promise<Answer> => {
      if (key === null) return handler(input, { ...context, caller: { ...caller, progress } });
      exchange.isDetached = true;
      const keyed = { route: name, client: { project: caller.project, principal: caller.principal }, key, hash: hashRequest(name, input) };
      return this.#idempotency.run(keyed, async (remember) => handler(input, { ...context, caller: { ...caller, progress, remember } }));
    };
    const describe = (error: unknown): Problem => describeError(error, caller, this.#services).problem;
    if (route.progress && wantsLines(request.headers.accept)) await sendLines(exchange, work, describe);
    else await respond(exchange, await work(), { describe });
  }

  #unknownPath(method: string, path: string): ForkdError {
    const allow = this.#router.methods(path);
    if (allow.length === 0) return new ForkdError("NOT_FOUND", "This path does not exist.", { hint: "spec/openapi.json lists all paths." });
    return new ForkdError("METHOD_NOT_ALLOWED", `Cannot ${method} this path: it takes ${allow.join(", ")}.`, { details: { allow } });
  }
}

function asProblem({ status, headers, problem }: { status: number; headers: Record<string, string>; problem: Problem }): Answer {
  return { status, headers, body: problem };
}

/** JSON body, or the stream itself; undefined for GET */
async function bodyOf({ method, request, response }: Exchange, route: Route, { limits }: Services): Promise<unknown> {
  if (route.body === "bytes") return request;
  if (method === "GET" || method === "HEAD") return undefined;
  const { "content-type": type, "content-length": length, "transfer-encoding": encoding } = request.headers;
  if (type === undefined && encoding === undefined && (length === undefined || length === "0")) return undefined;
  if (!/^\s*application\/json\s*(;|$)/i.test(type ?? ""))
    throw new ForkdError("UNSUPPORTED_MEDIA_TYPE", "Cannot read the body: its Content-Type is not application/json.");
  try {
    return await readJson(request, limits);
  } catch (error) {
    // the client may still send the rest of the body, which must not be parsed as the next request
    response.setHeader("connection", "close");
    throw error;
  }
}
