// A gateway: reads its keys and state, follows the nodes, and serves the API of a daemon for the whole cluster.

import { readFile } from "node:fs/promises";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { endServer } from "@forkd/runtime/util/end-server";
import { VERSION } from "@forkd/runtime/version";
import { readClusterKeys } from "@forkd/daemon/cluster/key-file";
import { AuthFailures } from "@forkd/daemon/dispatch/auth-failures";
import { createPipeline } from "@forkd/daemon/dispatch/dispatch";
import { InFlight } from "@forkd/daemon/dispatch/in-flight";
import { domainOf, proxyOrigin } from "@forkd/daemon/dispatch/proxy-domain";
import { AuditLog } from "@forkd/daemon/observe/audit";
import { Metrics } from "@forkd/daemon/observe/metrics";
import { LIMITS, type Limits } from "@forkd/daemon/streams/limits";
import { frontProxyFromCluster, frontProxyFromFile } from "./agents/front-proxy.ts";
import { serveAgents } from "./agents/server.ts";
import { poolFor } from "./agents/templates.ts";
import { joinKubernetes } from "./kubernetes/kubernetes.ts";
import { listen } from "./listen.ts";
import { Nodes } from "./nodes/nodes.ts";
import { Signer } from "./nodes/signer.ts";
import { Transfers } from "./nodes/transfers.ts";
import { Uses } from "./nodes/uses.ts";
import { e2bFrontEnd } from "./serve/e2b.ts";
import { KeyedNodes } from "./serve/keyed.ts";
import { Leaving } from "./serve/leaving.ts";
import { Places } from "./serve/places.ts";
import { portFrontEnd } from "./serve/port.ts";
import { ClusterQuotas } from "./serve/quotas.ts";
import { restFrontEnd } from "./serve/rest.ts";
import { uiFrontEnd } from "./serve/ui.ts";
import { openFolderState } from "./state/folder.ts";
import { ClusterLogins } from "./state/logins.ts";
import { ClusterProjects } from "./state/projects.ts";
import { principalOf } from "./state/state.ts";
import { ClusterTokens } from "./state/tokens.ts";
import type { Logger } from "@forkd/daemon/observe/log";
import type { Random } from "./placement/facts.ts";
import type { Cluster } from "./serve/cluster.ts";
import type { GatewayOptions } from "./options.ts";

const ABORT_MS = 5000;
/** Files of secrets are replaced without a signal, such as those of a mounted volume */
const RELOAD_MS = 10_000;

/** `pendingMs`: how often interrupted moves are looked for */
type Parts = { log: Logger; limits?: Partial<Limits>; random?: Random; pendingMs?: number };

export async function startGateway(options: GatewayOptions, parts: Parts): Promise<Gateway> {
  const { log } = parts;
  await using stack = new AsyncDisposableStack();
  const kubernetes = options.kubernetes === null ? null : stack.use(await joinKubernetes(options.kubernetes, options));
  const onError = (problem: string): void => log.warn({ problem }, "the cluster's state");
  const state = kubernetes?.state ?? stack.use(await openFolderState(options.state ?? "", { onError }));
  const tokens = new ClusterTokens(state);
  if (options.tokenFile !== null) await tokens.loadFile(options.tokenFile);
  const logins = new ClusterLogins(state, tokens);
  const projects = new ClusterProjects(state);
  const uses = new Uses();
  const signer = new Signer(await readClusterKeys(options.clusterKeyFile), { tokens, uses });
  const tls = options.tlsCert === null || options.tlsKey === null ? null : await readTls(options.tlsCert, options.tlsKey);
  const audit = options.auditLog === null ? null : stack.use(await AuditLog.open(options.auditLog, log));
  const addresses = kubernetes?.addresses ?? options.nodes.map((url) => ({ url }));
  const nodes = stack.use(new Nodes(addresses, { signer, projects, log }));
  const gateway = new Gateway(options, { tokens, signer, log });
  const values = { corsOrigins: null, allowedHosts: options.allowedHosts, bind: options.bind, proxyDomain: options.proxyDomain };
  const self = {
    version: VERSION,
    startedAtMs: Date.now(),
    bind: options.bind,
    tls: tls !== null,
    proxyUrl: null as string | null,
    settings:
      options.state === null
        ? { kubernetes: options.kubernetes ?? "", bind: options.bind }
        : { nodes: options.nodes.join(","), bind: options.bind, state: options.state },
  };
  const cluster: Cluster = {
    nodes,
    transfers: new Transfers(nodes, log),
    state,
    tokens,
    logins,
    projects,
    quotas: stack.use(new ClusterQuotas({ nodes, projects, uses })),
    failures: new AuthFailures(),
    metrics: new Metrics({ version: VERSION, branchConcurrency: 0 }),
    places: new Places(nodes),
    keyed: new KeyedNodes(),
    limits: { ...LIMITS, ...parts.limits },
    log,
    random: parts.random ?? Math.random,
    stopping: gateway.stopping,
    self,
  };
  const endRevoked = state.subscribe((kind, name) => {
    // a change ends the requests of the old value, on this gateway and on all others
    if (kind === "tokens")
      gateway.inFlight.abortOf(principalOf(name), new ForkdError("UNAUTHORIZED", "Cannot continue: the token was revoked or replaced."));
  });
  stack.defer(() => endRevoked());
  const endLoggedOut = logins.onEnd((id) => {
    gateway.inFlight.abortSession(id, new ForkdError("UNAUTHORIZED", "Cannot continue: the browser was logged out."));
  });
  stack.defer(() => endLoggedOut());
  await nodes.start();
  stack.use(new Leaving(cluster, parts));
  const poolOf = (project: string, tag: string): number => poolFor(state, project, tag);
  kubernetes?.attend({ nodes, transfers: cluster.transfers, projects, poolFor: poolOf, log });
  const services = {
    inFlight: gateway.inFlight,
    audit,
    log,
    limits: cluster.limits,
    cluster: null,
    config: { values },
    daemon: { store: { id: "", home: "a cluster" }, socket: "", stopping: gateway.stopping },
    metrics: cluster.metrics,
    tokens: { noteOfCluster: () => false },
    makerOf: () => null,
    projects,
    countRequest: (project: string) => cluster.quotas.request(project),
    usedElsewhere: () => undefined,
    movedTo: () => undefined,
  };
  const frontEnds = {
    rest: restFrontEnd(cluster),
    e2b: e2bFrontEnd(cluster),
    port: portFrontEnd(cluster),
    ui: uiFrontEnd(cluster, gateway.inFlight),
  };
  const server = createPipeline(services, frontEnds, { kind: "tcp", tls });
  stack.defer(async () => endServer(server));
  self.bind = await listen(server, options.bind);
  self.proxyUrl = proxyOrigin(domainOf(values), self);
  if (options.agentsBind !== null && tls) {
    const { agentsClientCa: file, agentsClientNames: names } = options;
    const agents = await serveAgents({
      ...cluster,
      bind: options.agentsBind,
      tls,
      frontProxy: async () => (kubernetes && file === null ? frontProxyFromCluster(kubernetes.api) : frontProxyFromFile(file ?? "", names)),
      pipeline: (accepted) => {
        const against = { tokens: accepted, failures: cluster.failures };
        const own = { ...frontEnds, rest: restFrontEnd(cluster, against), port: portFrontEnd(cluster, against) };
        return createPipeline(services, own, { kind: "tcp", tls: null });
      },
    });
    stack.use(agents);
    gateway.agentsBind = agents.bind;
  }
  const reload = setInterval(() => void gateway.reload(), RELOAD_MS);
  stack.defer(() => clearInterval(reload));
  gateway.own(stack.move(), self.bind);
  log.info({ version: VERSION, pid: process.pid, bind: self.bind, nodes: nodes.all.map(({ label }) => label) }, "ready");
  return gateway;
}

type Own = { tokens: ClusterTokens; signer: Signer; log: Logger };

export class Gateway implements AsyncDisposable {
  readonly inFlight: InFlight = new InFlight();
  /** actual HOST:PORT */
  bind = "";
  /** the same of the agent-sandbox API; empty: it is not served */
  agentsBind = "";
  readonly #options: GatewayOptions;
  readonly #parts: Own;
  readonly #stopping = new AbortController();
  readonly #ended = Promise.withResolvers<void>();
  #stack: AsyncDisposableStack | null = null;

  constructor(options: GatewayOptions, parts: Own) {
    this.#options = options;
    this.#parts = parts;
  }

  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Resolves when the gateway has stopped */
  get done(): Promise<void> {
    return this.#ended.promise;
  }

  own(stack: AsyncDisposableStack, bind: string): void {
    this.#stack = stack;
    this.bind = bind;
  }

  /** Completes requests in progress within `drainSecs` */
  stop(): Promise<void> {
    if (!this.#stopping.signal.aborted) {
      this.#stopping.abort();
      this.#drainAndClose().then(this.#ended.resolve, this.#ended.reject);
    }
    return this.done;
  }

  /** Reads the files of secrets again. On an error the old ones stay in use */
  async reload(): Promise<void> {
    const { tokens, signer, log } = this.#parts;
    try {
      if (this.#options.tokenFile !== null) await tokens.loadFile(this.#options.tokenFile);
      signer.keys = await readClusterKeys(this.#options.clusterKeyFile);
    } catch (error) {
      log.error({ err: error }, "cannot read a file of secrets; the previous ones stay");
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #drainAndClose(): Promise<void> {
    if (!(await this.inFlight.idle(this.#options.drainSecs * 1000))) {
      this.inFlight.abortAll(new ForkdError("STOPPING", "Cannot finish this: the gateway is stopping."));
      await this.inFlight.idle(ABORT_MS);
    }
    await this.#stack?.disposeAsync();
    this.#parts.log.info("stopped");
  }
}

async function readTls(cert: string, key: string): Promise<{ cert: Buffer; key: Buffer }> {
  try {
    return { cert: await readFile(cert), key: await readFile(key) };
  } catch (error) {
    throw new ForkdError("BAD_CONFIG", `Cannot serve TLS: ${messageOf(error)}.`, { cause: error });
  }
}
