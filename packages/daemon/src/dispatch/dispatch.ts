// Request pipeline of one transport: admission, dispatch to a front end, audit and metrics.

import { finished } from "node:stream/promises";
import { ForkdError } from "@forkd/runtime/errors";
import { allows, authorize, inProject, PROJECT_HEADER } from "./auth.ts";
import { allowedOrigins, allowOrigin, answerPreflight, isPreflight } from "./cors.ts";
import { Exchange, type Transport } from "./exchange.ts";
import { hostCheck } from "./hosts.ts";
import { createListener, type Incoming } from "./listener.ts";
import { describeError } from "./problem.ts";
import { domainOf } from "./proxy-domain.ts";
import { respond } from "./respond.ts";
import { takeStatement } from "./stated.ts";
import { movedAway } from "../service/registry.ts";
import { targetOf, type Target } from "./target.ts";
import type { Server, ServerResponse } from "node:http";
import type { Identity } from "../store/tokens.ts";
import type { FrontEnds, Work } from "./front-end.ts";
import type { Pipeline, Services } from "./services.ts";

/** Id of the store that the client expects; sent by clients that have FORKD_HOME */
const STORE_HEADER = "x-forkd-store";

/** Creates the HTTP server of a daemon; the caller starts listening */
export function createApi(services: Services, frontEnds: FrontEnds, transport: Transport): Server {
  const { manager } = services;
  const makerOf: Pipeline["makerOf"] = (name, project) => manager.ports.find(name, project)?.created_by ?? null;
  const countRequest: Pipeline["countRequest"] = (project) => manager.quotas.request(project);
  const usedElsewhere: Pipeline["usedElsewhere"] = (project, use) => manager.quotas.noteElsewhere(project, use);
  const movedTo: Pipeline["movedTo"] = (id) => {
    const node = id === null ? undefined : manager.moves.nodeOf(id);
    return id === null || node === undefined ? undefined : movedAway(id, node);
  };
  return createPipeline({ ...services, makerOf, countRequest, usedElsewhere, movedTo }, frontEnds, transport);
}

/** The same for any front ends */
export function createPipeline(services: Pipeline, frontEnds: FrontEnds, transport: Transport): Server {
  const { values } = services.config;
  const { limits, inFlight } = services;
  const domain = domainOf(values);
  const isAllowed = transport.kind === "tcp" ? allowedOrigins(values.corsOrigins) : null;
  // DNS rebinding fails under TLS: the certificate does not match the foreign name
  const checkHost = transport.kind === "tcp" && !transport.tls ? hostCheck(values) : null;
  const decide = (request: Incoming): Target => (request.target ??= targetOf(request, domain));

  const serve = async (exchange: Exchange, work: Work): Promise<void> => {
    const { request, response } = exchange;
    if (isPreflight(request, response)) {
      answerPreflight(response);
      return;
    }
    // no browser can send a gateway's statement, and the gateway has checked the name
    if (!exchange.isFromGateway) checkHost?.(request.headers.host);
    admit(exchange, work, services);
    await inFlight.run(exchange, () => work.serve());
  };

  const listener = (request: Incoming, response: ServerResponse): void => {
    const target = decide(request);
    const exchange = new Exchange(request, response, transport);
    let work: Work | undefined;
    const end = begin(exchange, services, () => record(exchange, work, services));
    // a guest server with its own host name sets its own CORS headers
    if (isAllowed && !(target.to === "port" && target.address.by === "host")) allowOrigin(request, response, isAllowed);
    // Node's server.close() waits for open connections, so keep-alive would delay the stop
    if (!server.listening) response.setHeader("connection", "close");
    const handle = async (): Promise<void> => {
      try {
        takeStatement(exchange, services);
        work = openWork(frontEnds, exchange, target);
        await serve(exchange, work);
      } catch (error) {
        await discardBody(request, limits.lingerMs);
        await fail(error, exchange, work, services);
      }
      if (response.statusCode === 101) end();
    };
    handle().catch((error: unknown) => {
      services.log.error({ err: error, request_id: exchange.id }, "an answer could not be sent");
      response.destroy();
    });
  };

  const server = createListener(listener, {
    limits,
    tls: transport.tls,
    mayUpgrade: (request) => mayUpgrade(frontEnds, decide(request)),
  });
  return server;
}

function mayUpgrade(frontEnds: FrontEnds, target: Target): boolean {
  if (target.to === "rest") return frontEnds.rest.mayUpgrade(target);
  if (target.to === "ui") return frontEnds.ui.mayUpgrade(target);
  if (target.to === "e2b") return frontEnds.e2b.mayUpgrade(target);
  return frontEnds.port.mayUpgrade(target);
}

function openWork(frontEnds: FrontEnds, exchange: Exchange, target: Target): Work {
  if (target.to === "rest") return frontEnds.rest.open(exchange, target);
  if (target.to === "ui") return frontEnds.ui.open(exchange, target);
  if (target.to === "e2b") return frontEnds.e2b.open(exchange, target);
  return frontEnds.port.open(exchange, target);
}

/** Counts the request as in flight until the response closes. Returns a function that ends it earlier */
function begin(exchange: Exchange, { inFlight, limits }: Pipeline, onEnd: () => void): () => void {
  const { request, response } = exchange;
  const { socket } = request;
  const leave = (): void => exchange.leave();
  let hasEnded = false;
  const end = (): void => {
    if (hasEnded) return;
    hasEnded = true;
    socket.off("end", leave);
    leave();
    inFlight.leave(exchange);
    onEnd();
    if (!request.complete) linger(request, limits.lingerMs);
  };
  response.setHeader("x-request-id", exchange.id);
  inFlight.enter(exchange);
  socket.once("end", leave);
  response.once("close", end);
  return end;
}

/** Runs before any byte of the body is read */
function admit(exchange: Exchange, work: Work, services: Pipeline): void {
  const { request } = exchange;
  const { daemon } = services;
  if (request.httpVersion === "1.1" && request.headers.host === undefined)
    throw new ForkdError("BAD_REQUEST", "Cannot read the request: it has no Host.");
  const wanted = request.headers[STORE_HEADER];
  if (wanted !== undefined && wanted !== daemon.store.id)
    throw new ForkdError("WRONG_STORE", `Cannot do this: the daemon at ${daemon.socket} serves another store: ${daemon.store.home}.`);
  if (work.isProbe) return;
  if (daemon.stopping.aborted) throw new ForkdError("STOPPING", "Cannot begin this: the daemon is stopping.");
  // to a gateway at once, in every protocol and before the body; the other node checks the credentials
  const moved = exchange.isFromGateway ? services.movedTo(work.sandbox()) : undefined;
  if (moved) throw moved;
  const { identity, scope } = work.admit();
  const across = { projects: services.projects, acrossProjects: work.acrossProjects === true };
  // before the project: an unauthorized request must be audited with its principal
  exchange.identity = identity;
  if (identity) exchange.identity = inProject(identity, request.headers[PROJECT_HEADER], across);
  const sandbox = work.sandbox();
  exchange.maker = sandbox === null ? null : services.makerOf(sandbox, exchange.identity?.project);
  if (identity && scope) authorize(identity, scope);
  // the gateway has counted a request whose principal it states
  if (exchange.identity && !exchange.stated && isCounted(exchange.identity)) services.countRequest(exchange.identity.project);
}

/** Visitors of a guest's server do not use up the project's requests. An operator must be able to raise the limit */
function isCounted(identity: Identity): boolean {
  const { via } = identity;
  return via !== "preview" && via !== "traffic" && via !== "public" && !allows(identity, "operator");
}

async function fail(error: unknown, exchange: Exchange, work: Work | undefined, services: Pipeline): Promise<void> {
  const { response } = exchange;
  const asked = { requestId: exchange.id, signal: exchange.signal, statusOf: work?.statusOf };
  const answer = describeError(error, asked, services);
  if (response.headersSent || response.destroyed || response.statusCode === 101) {
    response.destroy();
    return;
  }
  const { status, headers, problem } = answer;
  await respond(exchange, work?.refuse(answer) ?? { status, headers, body: problem });
}

function record(exchange: Exchange, work: Work | undefined, services: Pipeline): void {
  const { request, response, method, identity, maker, remote } = exchange;
  const ms = performance.now() - exchange.startMs;
  const status = response.headersSent || response.statusCode === 101 ? response.statusCode : 499;
  services.metrics.answered({ route: work?.label ?? "unknown", method, status, ms });
  // skip successful health probes: they would flood the audit log
  if (!services.audit || (work?.isProbe && status === 200)) return;
  services.audit.write({
    request_id: exchange.id,
    principal: identity && principalOf(identity),
    maker,
    remote,
    method,
    path: work?.path ?? pathOf(request.url ?? ""),
    sandbox: work?.sandbox() ?? null,
    snapshot: work?.snapshot ?? null,
    status,
    latency_us: Math.round(ms * 1000),
    user_agent: request.headers["user-agent"] ?? null,
  });
}

/** Audit name of the client. A preview link and a dashboard are logged with their creator, an access token with its kind */
function principalOf({ name, via }: Identity): string {
  if (via === undefined) return name;
  if (via === "ui") return `ui:${name.replace(/^ui:/, "")}`;
  return via === "preview" ? `preview:${name}` : `access:${via}`;
}

/** Reads the body before an error response closes the connection: a client still sending would lose the response */
async function discardBody(request: Incoming, lingerMs: number): Promise<void> {
  if (request.complete || request.destroyed) return;
  request.resume();
  // on timeout or disconnect the response is sent anyway
  await finished(request, { signal: AbortSignal.timeout(lingerMs), cleanup: true }).catch(() => undefined);
}

/** Discards the rest of the body for a limited time, so that a client that is still sending can read the response */
function linger(request: Incoming, lingerMs: number): void {
  const timer = setTimeout(() => request.socket.destroy(), lingerMs).unref();
  const stop = (): void => clearTimeout(timer);
  request.once("end", stop);
  request.once("close", stop);
  request.resume();
}

function pathOf(url: string): string {
  const end = url.search(/[?#]/);
  return end < 0 ? url : url.slice(0, end);
}
