// The HTTPS server of the agent-sandbox API: the API server of Kubernetes is known by its certificate, clients of
// sandboxes by a token of the cluster.

import { createServer } from "node:https";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { endServer } from "@forkd/runtime/util/end-server";
import { listen } from "../listen.ts";
import { Follower, type Places } from "./follow.ts";
import { Inner, Refused } from "./inner.ts";
import { Journal } from "./journal.ts";
import { userOf, type FrontProxy } from "./front-proxy.ts";
import { failureOf, failureOfProblem, problemIn, refusal, type Status } from "./refusal.ts";
import { serveApi } from "./requests.ts";
import { isForSandbox, serveSandbox } from "./router.ts";
import { SandboxIndex } from "./sandbox-index.ts";
import { noteStored } from "./templates.ts";
import type { IncomingMessage, Server as HttpServer, ServerResponse } from "node:http";
import type { AuthFailures } from "@forkd/daemon/dispatch/auth-failures";
import type { Tls } from "@forkd/daemon/dispatch/listener";
import type { Logger } from "@forkd/daemon/observe/log";
import type { Tokens } from "@forkd/daemon/store/tokens";
import type { Limits } from "@forkd/daemon/streams/limits";
import type { Nodes } from "../nodes/nodes.ts";
import type { ClusterProjects } from "../state/projects.ts";
import type { ClusterState } from "../state/state.ts";
import type { Agents } from "./call.ts";

const REFRESH_MS = 60_000;
const KEEP_ALIVE_MS = 75_000;

type AgentsParts = {
  bind: string;
  tls: Tls;
  /** read again each minute: authorities change */
  frontProxy: () => Promise<FrontProxy>;
  /** a pipeline of the gateway's API whose tokens are those of `find` */
  pipeline: (tokens: Pick<Tokens, "find">) => HttpServer;
  nodes: Nodes;
  places: Places;
  state: ClusterState;
  projects: ClusterProjects;
  tokens: Pick<Tokens, "find">;
  failures: AuthFailures;
  limits: Limits;
  log: Logger;
  stopping: AbortSignal;
};

type AgentsServer = AsyncDisposable & { bind: string };

export async function serveAgents(parts: AgentsParts): Promise<AgentsServer> {
  const { state, nodes, projects, log, tls, stopping } = parts;
  await using stack = new AsyncDisposableStack();
  const inner = new Inner();
  inner.serve(parts.pipeline(inner));
  const journal = new Journal();
  const index = new SandboxIndex(journal, (id) => parts.places.codeOf(id));
  const agents: Agents = { inner, journal, index, state, projects };
  noteStored(agents);
  const unsubscribe = state.subscribe((kind, name) => {
    if (kind === "templates") noteStored(agents, name);
  });
  stack.defer(unsubscribe);
  stack.use(new Follower({ nodes, places: parts.places, journal, index, log }));
  let proxy = await parts.frontProxy();
  const context = (): object => ({ ...tls, ca: [proxy.ca] });
  // a client of a sandbox has no certificate; what a connection may do is decided for each request
  const options = {
    requestCert: true,
    rejectUnauthorized: false,
    minVersion: "TLSv1.2" as const,
    keepAliveTimeout: KEEP_ALIVE_MS,
    headersTimeout: parts.limits.headersMs,
    // uploads may take any time
    requestTimeout: 0,
    noDelay: true,
  };
  const server = createServer({ ...context(), ...options }, (request, response) => {
    void serve({ ...parts, agents, proxy }, request, response);
  });
  server.maxConnections = parts.limits.connections;
  stack.defer(async () => endServer(server));
  const refresh = setInterval(() => {
    parts.frontProxy().then(
      (latest) => {
        proxy = latest;
        server.setSecureContext(context());
      },
      (error: unknown) =>
        log.warn({ problem: messageOf(error) }, "cannot read how the API server identifies itself; the last answer stays"),
    );
  }, REFRESH_MS);
  stack.defer(() => clearInterval(refresh));
  const bind = await listen(server, parts.bind);
  log.info({ bind }, "the agent-sandbox API is served");
  const owned = stack.move();
  stopping.addEventListener("abort", () => server.close(), { once: true });
  return { bind, [Symbol.asyncDispose]: async () => owned.disposeAsync() };
}

type Serving = AgentsParts & { agents: Agents; proxy: FrontProxy };

async function serve(serving: Serving, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const gone = new AbortController();
  response.once("close", () => {
    if (!response.writableFinished) gone.abort(new ForkdError("CANCELLED", "The client disconnected."));
  });
  const { agents, proxy, limits, stopping, log } = serving;
  try {
    const user = userOf(request, proxy);
    if (user !== null) await serveApi(agents, { user, request, response, limits, signal: gone.signal, stopping });
    else if (isForSandbox(request)) await serveSandbox({ ...serving, inner: agents.inner }, request, response, gone.signal);
    else throw refusal("Unauthorized", "Only the API server of Kubernetes may ask this, with the certificate of its aggregation layer.");
  } catch (error) {
    if (!(error instanceof ForkdError) && !(error instanceof Refused) && !gone.signal.aborted)
      log.error({ err: error, path: request.url }, "a request of the agent-sandbox API failed");
    fail(error, request, response);
  }
}

/** Kubernetes' form for the API server, forkd's for clients of a sandbox */
function fail(error: unknown, request: IncomingMessage, response: ServerResponse): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const status = statusOf(error);
  const isOfApi = !isForSandbox(request);
  const body = isOfApi
    ? status
    : { detail: status.message, code: (status.details?.["causes"] as { reason?: string }[] | undefined)?.[0]?.reason };
  const bytes = JSON.stringify(body);
  // the rest of an unread body would be taken for the next request
  response.writeHead(status.code, {
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(bytes)),
    connection: "close",
  });
  response.end(bytes);
  request.resume();
}

function statusOf(error: unknown): Status {
  if (error instanceof ForkdError) return failureOf(error);
  if (error instanceof Refused) return failureOfProblem(problemIn(error.body), error.status);
  return failureOf(new ForkdError("INTERNAL", "Cannot do this: something went wrong inside the gateway."));
}
