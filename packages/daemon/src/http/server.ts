// The HTTP API over one transport: recognises who asks, checks what is asked, has it done, answers and writes it down.

import { randomUUID } from "node:crypto";
import { METHODS } from "node:http";
import { finished } from "node:stream/promises";
import fastify from "fastify";
import { routes } from "../api/routes.ts";
import { callOf } from "../e2b/call.ts";
import { refusal } from "../e2b/errors.ts";
import { ForkdError } from "../errors.ts";
import { authenticate, authorize, bearerOf } from "./auth.ts";
import { readJson } from "./body.ts";
import { allowedOrigins, answerPreflight, isPreflight, tellOrigin } from "./cors.ts";
import { handlers } from "./handlers/all.ts";
import { hashRequest, keyOf } from "./idempotency.ts";
import { createListener, refuse } from "./listener.ts";
import { allowedMethods } from "./methods.ts";
import { describeError } from "./problem.ts";
import { admitToServer } from "./proxy/access.ts";
import { addressOf, routedUrl, splitDomain } from "./proxy/address.ts";
import { wantsPage } from "./proxy/page.ts";
import { send, sendError, sendLines, sendPage, sendPassage, wantsLines } from "./respond.ts";
import { isUpgrade, mayUpgrade, takeOver, upgradeOf } from "./upgrade.ts";
import { validate } from "./validate.ts";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Problem } from "../api/common.ts";
import type { Route } from "../api/route.ts";
import type { RouteName } from "../api/routes.ts";
import type { Call } from "../e2b/call.ts";
import type { Caller } from "../manager/caller.ts";
import type { Identity } from "../store/tokens.ts";
import type { Progress } from "../util/progress.ts";
import type { TransportKind } from "./auth.ts";
import type { AnyAnswer, Context, Passage } from "./handler.ts";
import type { Tls } from "./listener.ts";
import type { Access } from "./proxy/access.ts";
import type { Address, Domain } from "./proxy/address.ts";
import type { Exchange } from "./proxy/forward.ts";
import type { Services } from "./services.ts";

const REQUEST_ID = /^[A-Za-z0-9._-]{1,64}$/;
const MAX_PARAM_LENGTH = 512;

export type Transport = { kind: TransportKind; tls: Tls | null };

/** What is known of a request on its way */
type State = {
  startMs: number;
  identity: Identity | null;
  controller: AbortController;
  /** of a request for a server in a guest: whose it is, and once that is clear, how it may */
  address: Address | null;
  access: Access | null;
  /** of a request in E2B's protocol */
  e2b: Call | null;
  /** goes on when the client is gone: it may come back for the answer */
  isDetached: boolean;
  /** the connection is done with it */
  end: () => void;
};

declare module "fastify" {
  interface FastifyRequest {
    forkd: State;
  }
  interface FastifyContextConfig {
    name?: RouteName;
  }
}

/** Requests for servers in guests, by what they were before the router saw them */
const addresses = new WeakMap<IncomingMessage, Address>();
const calls = new WeakMap<IncomingMessage, Call>();
/** Where the router finds what is E2B's; what is not has nothing there */
const E2B_PATH = "/e2b";

export function buildApp(services: Services, transport: Transport): FastifyInstance {
  const { corsOrigins, proxyDomain } = services.config.values;
  const isAllowed = transport.kind === "tcp" ? allowedOrigins(corsOrigins) : null;
  const domain = proxyDomain === null ? null : splitDomain(proxyDomain);
  const start = (request: FastifyRequest, reply: FastifyReply): void => {
    begin(request, reply, services, transport);
    // which pages may use a guest's server is that server's own business
    if (isAllowed && request.forkd.address?.by !== "host") tellOrigin(request, reply, isAllowed);
  };
  const app = fastify({
    logger: false,
    exposeHeadRoutes: true,
    return503OnClosing: false,
    requestIdHeader: false,
    genReqId: requestId,
    rewriteUrl: (raw) => {
      const place = callOf(raw, addressOf(raw, domain));
      if (!place) return raw.url ?? "";
      // of what kind a body is, is for others to judge
      raw.headers["content-type"] = "application/octet-stream";
      if ("plane" in place) {
        calls.set(raw, place);
        // its clients know a stream that broke by its connection, not by what could be said behind it
        delete raw.headers.te;
        return E2B_PATH;
      }
      addresses.set(raw, place);
      return routedUrl(place);
    },
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: MAX_PARAM_LENGTH },
    // what cannot be routed comes here and to no hook
    frameworkErrors: (error, request, reply) => {
      start(request, reply);
      fail(error, request, reply, services);
    },
    // in place of Fastify's own, which would write a second answer behind this one
    clientErrorHandler: refuse,
    serverFactory: (listener) =>
      createListener(listener, { limits: services.limits, tls: transport.tls, mayUpgrade: (raw) => mayUpgrade(raw, domain) }),
  });
  for (const method of METHODS)
    if (method !== "CONNECT" && !app.supportedMethods.includes(method)) app.addHttpMethod(method, { hasBody: true });
  app.decorateRequest("forkd", null as unknown as State);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("application/json", (_request: FastifyRequest, payload: IncomingMessage) => readJson(payload, services.limits));
  app.addHook("onRequest", (request, reply, done) => {
    start(request, reply);
    if (isPreflight(request, reply)) {
      answerPreflight(reply);
      return;
    }
    admit(request, services, transport, domain);
    done();
  });
  app.setErrorHandler(async (error, request, reply) => {
    await readAway(request, services.limits.lingerMs);
    return fail(error, request, reply, services);
  });
  for (const [name, route] of Object.entries(routes) as [RouteName, Route][]) {
    if (route.body !== "bytes") addRoute(app, name, route, { services, transport });
  }
  // a context of its own: there, a body of any type is left alone for the handler to read
  app.register((child, _options, done) => {
    child.removeAllContentTypeParsers();
    child.addContentTypeParser("*", (_request, payload, parsed) => parsed(null, payload));
    for (const [name, route] of Object.entries(routes) as [RouteName, Route][]) {
      if (route.body === "bytes") addRoute(child, name, route, { services, transport });
    }
    addE2b(child, services);
    done();
  });
  return app;
}

type Parts = { services: Services; transport: Transport };

function addRoute(app: FastifyInstance, name: RouteName, route: Route, parts: Parts): void {
  app.route({
    method: route.method === "ALL" ? app.supportedMethods : route.method,
    // the router sees nothing of what lies behind: see rewriteUrl
    url: route.path.replace(/\/\*$/, ""),
    config: { name },
    handler: (request, reply) => parts.services.inFlight.run(request.forkd, () => serve(name, route, request, reply, parts)),
  });
}

function addE2b(app: FastifyInstance, services: Services): void {
  const serve = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { e2b } = request.forkd;
    if (!e2b) throw unknownPath(request);
    const answer = await services.e2b.serve(e2b, request.raw, callerOf(request));
    const describe = (error: unknown): Problem => describeError(error, callerOf(request), services).problem;
    return typeof answer.body === "function" ? sendPassage(reply, answer.status, answer.body as Passage) : send(reply, answer, describe);
  };
  app.route({
    method: app.supportedMethods,
    url: E2B_PATH,
    handler: (request, reply) => services.inFlight.run(request.forkd, () => serve(request, reply)),
  });
}

/** From here on, whatever happens to the request is seen, counted and written down when its connection is done with it */
function begin(request: FastifyRequest, reply: FastifyReply, services: Services, transport: Transport): void {
  const controller = new AbortController();
  const state: State = {
    startMs: performance.now(),
    identity: null,
    controller,
    address: addresses.get(request.raw) ?? null,
    access: null,
    e2b: calls.get(request.raw) ?? null,
    isDetached: false,
    end: () => undefined,
  };
  request.forkd = state;
  reply.raw.setHeader("x-request-id", request.id);
  services.inFlight.enter(state);
  const { socket } = request.raw;
  const leave = (): void => {
    if (!state.isDetached && !reply.raw.writableFinished) state.controller.abort(new ForkdError("CANCELLED", "The client went away."));
  };
  socket.once("end", leave);
  state.end = () => {
    state.end = () => undefined;
    socket.off("end", leave);
    leave();
    services.inFlight.leave(state);
    record(request, reply, services, transport);
    if (!request.raw.complete) linger(request.raw, services.limits.lingerMs);
  };
  reply.raw.once("close", () => state.end());
}

/** Before any byte of the body is read */
function admit(request: FastifyRequest, services: Services, transport: Transport, domain: Domain | null): void {
  if (request.raw.httpVersion === "1.1" && request.headers.host === undefined)
    throw new ForkdError("BAD_REQUEST", "Cannot read the request: it has no Host.");
  const { headers, forkd } = request;
  const asked = { kind: transport.kind, remote: remoteOf(request, transport) };
  if (forkd.e2b) {
    if (services.daemon.stopping.aborted) throw new ForkdError("STOPPING", "Cannot begin this: the daemon is stopping.");
    forkd.identity = services.e2b.admit(forkd.e2b, { ...asked, request: request.raw });
    return;
  }
  const { name } = request.routeOptions.config;
  const scope = name === undefined ? "read" : routes[name].scope;
  if (scope === "none") return;
  if (services.daemon.stopping.aborted) throw new ForkdError("STOPPING", "Cannot begin this: the daemon is stopping.");
  if (forkd.address) forkd.access = admitToServer({ ...asked, address: forkd.address, headers, domain }, services);
  const identity = forkd.access?.identity ?? authenticate({ ...asked, token: bearerOf(headers.authorization) }, services);
  forkd.identity = identity;
  if (name === undefined) throw unknownPath(request);
  authorize(identity, scope);
}

async function serve(
  name: RouteName,
  route: Route,
  request: FastifyRequest,
  reply: FastifyReply,
  { services, transport }: Parts,
): Promise<FastifyReply> {
  const state = request.forkd;
  const { signal } = state.controller;
  // ended by us while its body was read; a client that only closed its sending side still gets its answer
  if (signal.aborted && (signal.reason as ForkdError).code !== "CANCELLED") throw signal.reason as ForkdError;
  const body = route.body === "bytes" ? request.raw : request.body;
  const input = validate(route, { params: request.params, query: request.query, body });
  // where there is also another answer, nobody has to ask for this one
  const isAsked = 101 in route.responses && (isUpgrade(request.raw) || Object.keys(route.responses).length === 1);
  const upgrade = isAsked ? upgradeOf(request.raw) : undefined;
  const caller = callerOf(request);
  const { principal } = caller;
  // the table of handlers is typed route by route; here is the one place that goes through all of them
  const handler = handlers[name] as (input: unknown, context: Context) => AnyAnswer | Promise<AnyAnswer>;
  const context = { services, headers: request.headers, exchange: exchangeOf(request, transport) };
  const key = route.method === "POST" ? keyOf(name, request.headers["idempotency-key"]) : null;
  const work = async (progress?: Progress): Promise<AnyAnswer> => {
    if (key === null) return handler(input, { ...context, caller: { ...caller, progress } });
    state.isDetached = true;
    return services.idempotency.run({ route: name, principal, key, hash: hashRequest(name, input) }, async (remember) =>
      handler(input, { ...context, caller: { ...caller, progress, remember } }),
    );
  };
  const describe = (error: unknown): Problem => describeError(error, { requestId: request.id, signal }, services).problem;
  if (route.progress && wantsLines(request.headers.accept)) return sendLines(reply, work, describe);
  const answer = await work();
  if (typeof answer.body === "function" && answer.status !== 101) return sendPassage(reply, answer.status, answer.body as Passage);
  if (answer.status !== 101 || !upgrade) return send(reply, answer, describe);
  // from here on the end of what it sends is not the end of it
  state.isDetached = true;
  // from here on its connection is no longer HTTP
  reply.code(101).hijack();
  reply.raw.detachSocket(upgrade.socket as Socket);
  await takeOver(upgrade, answer.body, state.controller);
  state.end();
  return reply;
}

function callerOf({ id, forkd: { identity, controller } }: FastifyRequest): Caller {
  return {
    principal: identity?.name ?? "nobody",
    isAdmin: identity?.scope === "admin",
    maxSandboxes: identity?.maxSandboxes ?? null,
    requestId: id,
    signal: controller.signal,
  };
}

function exchangeOf(request: FastifyRequest, transport: Transport): Exchange | null {
  const { raw, id } = request;
  const { address, access } = request.forkd;
  if (!address || !access) return null;
  const remote = transport.kind === "unix" ? null : remoteOf(request, transport);
  return { request: raw, isUpgrade: isUpgrade(raw), address, access, requestId: id, remote, isTls: transport.tls !== null };
}

function fail(error: unknown, request: FastifyRequest, reply: FastifyReply, services: Services): FastifyReply {
  const { name } = request.routeOptions.config;
  const route: Route | null = name === undefined ? null : routes[name];
  const { controller, address, e2b } = request.forkd;
  const answer = describeError(error, { requestId: request.id, signal: controller.signal, statusOf: route?.statusOf }, services);
  if (e2b) return send(reply, refusal(e2b, answer), () => answer.problem);
  if (!address) return sendError(reply, answer);
  // an answer of ours among those of a guest is known by this
  answer.headers["x-forkd-error"] = answer.problem.code;
  return address.by === "host" && wantsPage(request.raw) ? sendPage(reply, answer) : sendError(reply, answer);
}

function unknownPath(request: FastifyRequest): ForkdError {
  const path = pathOf(request.url);
  const allow = allowedMethods(path);
  if (allow.length === 0) return new ForkdError("NOT_FOUND", "There is nothing under this path.", { hint: "See GET /v1/openapi.json." });
  return new ForkdError("METHOD_NOT_ALLOWED", `Cannot ${request.method} this path: it takes ${allow.join(", ")}.`, { details: { allow } });
}

function record(request: FastifyRequest, reply: FastifyReply, services: Services, transport: Transport): void {
  const ms = performance.now() - request.forkd.startMs;
  const { name } = request.routeOptions.config;
  const status = reply.raw.headersSent || reply.statusCode === 101 ? reply.statusCode : 499;
  const route = name === undefined ? null : routes[name];
  services.metrics.answered({ route: route?.path ?? (request.forkd.e2b ? E2B_PATH : "unknown"), method: request.method, status, ms });
  // probes come every few seconds, from nobody, about nothing
  if (!services.audit || (route?.scope === "none" && status === 200)) return;
  const params = (request.params ?? {}) as { id?: string; tag?: string };
  const { e2b } = request.forkd;
  services.audit.write({
    request_id: request.id,
    principal: principalOf(request.forkd),
    remote: remoteOf(request, transport),
    method: request.method,
    path: e2b?.path ?? pathOf(request.url),
    sandbox: (e2b?.plane === "sandbox" ? e2b.id : params.id) ?? null,
    snapshot: params.tag ?? null,
    status,
    latency_us: Math.round(ms * 1000),
    user_agent: request.headers["user-agent"] ?? null,
  });
}

/** Whoever came by a link is not known, but who made it is */
function principalOf({ identity, access }: State): string | null {
  return access?.by === "preview" ? `preview:${access.identity.name}` : (identity?.name ?? null);
}

/** The connection ends with a refusal. On a client that is still sending it would end before that has read it: the rest comes first */
async function readAway({ raw }: FastifyRequest, lingerMs: number): Promise<void> {
  if (raw.complete || raw.destroyed) return;
  raw.resume();
  // a client that goes away or goes on for too long gets what it then can get
  await finished(raw, { signal: AbortSignal.timeout(lingerMs), cleanup: true }).catch(() => undefined);
}

/** The rest of an unwanted body is read away for a while, so that a client that is still sending gets to read its answer */
function linger(raw: IncomingMessage, lingerMs: number): void {
  const timer = setTimeout(() => raw.socket.destroy(), lingerMs).unref();
  const stop = (): void => clearTimeout(timer);
  raw.once("end", stop);
  raw.once("close", stop);
  raw.resume();
}

function requestId(raw: IncomingMessage): string {
  const given = raw.headers["x-request-id"];
  return typeof given === "string" && REQUEST_ID.test(given) ? given : randomUUID();
}

function remoteOf(request: FastifyRequest, transport: Transport): string {
  return transport.kind === "unix" ? "unix" : (request.raw.socket.remoteAddress ?? "unknown");
}

function pathOf(url: string): string {
  const end = url.search(/[?#]/);
  return end < 0 ? url : url.slice(0, end);
}
