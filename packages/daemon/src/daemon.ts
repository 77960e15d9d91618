// Daemon life cycle: locks the store, starts the manager, serves the API, and stops in reverse order.

import { once } from "node:events";
import { chmod, open, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { createSecureContext } from "node:tls";
import { splitBind } from "./config.ts";
import { ClaimReader } from "./cluster/identity.ts";
import { readClusterKeys } from "./cluster/key-file.ts";
import { E2b } from "./e2b/e2b.ts";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { prepareHome } from "@forkd/runtime/home";
import { storeId } from "@forkd/runtime/paths";
import { endServer, followHandshakes } from "@forkd/runtime/util/end-server";
import { AuthFailures } from "./dispatch/auth-failures.ts";
import { Idempotency } from "./rest/idempotency.ts";
import { InFlight } from "./dispatch/in-flight.ts";
import { Proxy } from "./proxy/proxy.ts";
import { createApi } from "./dispatch/dispatch.ts";
import { Rest } from "./rest/rest.ts";
import { Ui } from "./ui/ui.ts";
import { SETTINGS } from "./settings.ts";
import { LIMITS, type Limits } from "./streams/limits.ts";
import { Recipes } from "./recipe/recipes.ts";
import { Manager } from "./service/manager.ts";
import { AuditLog } from "./observe/audit.ts";
import { STEP_SECS } from "./observe/history.ts";
import { Metrics } from "./observe/metrics.ts";
import { AccessTokens } from "./store/access-tokens.ts";
import { Db } from "./store/db.ts";
import { IdempotencyStore } from "./store/idempotency.ts";
import { nodeCodeOf } from "./store/node-code.ts";
import { MovedAccess } from "./store/moved-access.ts";
import { Previews } from "./store/previews.ts";
import { Projects } from "./store/projects.ts";
import { TOKEN_FILE, Tokens } from "./store/tokens.ts";
import { UiSessions } from "./store/ui-sessions.ts";
import { VERSION } from "@forkd/runtime/version";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Config, ResolvedConfig } from "./config.ts";
import type { Home } from "@forkd/runtime/home";
import type { Tls } from "./dispatch/listener.ts";
import type { Services } from "./dispatch/services.ts";
import type { ManagerApi, ManagerOptions } from "./service/manager.ts";
import type { Logger } from "./observe/log.ts";

const ANY_LOOPBACK_PORT = "127.0.0.1:0";
const PRUNE_MS = 3_600_000;
/** How long a stream of an expired token can last at most */
const EXPIRE_MS = 1000;
/** How long aborted work may take to end */
const ABORT_MS = 5_000;
const MAX_IDLE_CHECK_MS = 10_000;

export type StopOptions = { killSandboxes: boolean };

export type DaemonOptions = {
  config: ResolvedConfig;
  home: Home;
  log: Logger;
  /** replaced by tests */
  startManager?: (opts: ManagerOptions) => Promise<ManagerApi>;
  limits?: Partial<Limits>;
};

export async function startDaemon(opts: DaemonOptions): Promise<Daemon> {
  const { home, log } = opts;
  const config = opts.config.values;
  for (const warning of opts.config.warnings) log.warn(warning);
  await prepareHome(home);
  await using stack = new AsyncDisposableStack();

  const db = await openDb(join(home.root, "state.db"));
  stack.defer(() => db.close());
  const tokens = new Tokens(db);
  const projects = new Projects(db);
  if (config.tokenFile !== null) await tokens.loadFile(config.tokenFile);
  const cluster = config.clusterKeyFile === null ? null : new ClaimReader(await readClusterKeys(config.clusterKeyFile));
  const tls = await readTls(config);
  const idempotencyStore = new IdempotencyStore(db);
  idempotencyStore.prune();
  const audit = config.auditLog === null ? null : stack.use(await AuditLog.open(config.auditLog, log));
  const metrics = new Metrics({ version: VERSION, branchConcurrency: config.branchConcurrency });

  const startManager = opts.startManager ?? ((options: ManagerOptions) => Manager.start(options));
  const { parallelism } = config;
  const manager = await startManager({
    home,
    node: nodeCodeOf(db),
    db,
    settings: config,
    parallelism,
    meter: metrics,
    log,
    version: VERSION,
    projects,
    maxSandboxesOf: (principal) => tokens.maxSandboxesOf(principal),
    audit: audit ? (entry) => audit.write(entry) : undefined,
  });
  metrics.collectFrom(() => manager.gauges());
  const store = { id: storeId(home.root), home: home.root };
  const daemon = new Daemon({
    config,
    log,
    manager,
    tokens,
    cluster,
    audit,
    store,
    socket: join(home.run, "forkd.sock"),
    tls: tls !== null,
  });
  stack.defer(() => manager.stop({ killSandboxes: daemon.killsSandboxes }));

  const recipes = new Recipes(manager, { home, log });
  const removeLeftovers = await recipes.leftovers("daemon");
  const movedAccess = new MovedAccess(db);
  const services: Services = {
    manager,
    recipes,
    daemon,
    config: opts.config,
    metrics,
    tokens,
    projects,
    previews: new Previews(db, tokens, { moved: movedAccess }),
    uiSessions: new UiSessions(db, tokens),
    accessTokens: new AccessTokens(db, tokens, movedAccess),
    movedAccess,
    cluster,
    failures: new AuthFailures(),
    inFlight: daemon.inFlight,
    audit,
    log,
    limits: { ...LIMITS, ...opts.limits },
  };
  const frontEnds = {
    rest: new Rest(services, new Idempotency(idempotencyStore)),
    e2b: new E2b(services, join(home.cache, "e2b-files")),
    port: stack.use(new Proxy(services)),
    ui: new Ui(services),
  };
  const unix = createApi(services, frontEnds, { kind: "unix", tls: null });
  stack.defer(async () => endServer(unix));
  await listenUnix(unix, daemon.socket);
  const tcpServers: Server[] = [];
  stack.defer(async () => Promise.all(tcpServers.map(endServer)).then(() => undefined));
  daemon.listener = async (bind) => {
    const tcp = createApi(services, frontEnds, { kind: "tcp", tls });
    const address = await listenTcp(tcp, bind);
    tcpServers.push(tcp);
    manager.servesAt(address);
    return address;
  };
  if (config.bind !== null) daemon.bind = await daemon.listener(config.bind);
  void removeLeftovers();
  const prune = setInterval(() => idempotencyStore.prune(), PRUNE_MS);
  stack.defer(() => clearInterval(prune));
  const expire = setInterval(() => {
    const over = new ForkdError("UNAUTHORIZED", "Cannot continue: the token has expired.");
    for (const principal of tokens.prune()) daemon.inFlight.abortOf(principal, over);
  }, EXPIRE_MS);
  stack.defer(() => clearInterval(expire));
  const sample = setInterval(() => {
    metrics.sample().catch((error: unknown) => log.warn({ err: error }, "could not measure the sandboxes"));
  }, STEP_SECS * 1000);
  stack.defer(() => clearInterval(sample));
  stack.defer(daemon.watchIdleness());
  daemon.own(stack.move());
  log.info({ version: VERSION, pid: process.pid, socket: daemon.socket, bind: daemon.bind, home: home.root }, "ready");
  return daemon;
}

type Parts = {
  config: Config;
  log: Logger;
  manager: ManagerApi;
  tokens: Tokens;
  cluster: ClaimReader | null;
  audit: AuditLog | null;
  store: { id: string; home: string };
  socket: string;
  tls: boolean;
};

export class Daemon implements AsyncDisposable {
  readonly version: string = VERSION;
  readonly store: { id: string; home: string };
  readonly socket: string;
  readonly tls: boolean;
  readonly startedAtMs: number = Date.now();
  readonly inFlight: InFlight = new InFlight();
  /** actual HOST:PORT of the TCP listener; null without TCP */
  bind: string | null = null;
  /** starts to listen on an address and returns the actual one */
  listener: ((bind: string) => Promise<string>) | null = null;
  readonly #parts: Parts;
  #listening: Promise<string> | null = null;
  readonly #stopping = new AbortController();
  readonly #ended = Promise.withResolvers<void>();
  #stack: AsyncDisposableStack | null = null;
  #killsSandboxes = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.store = parts.store;
    this.socket = parts.socket;
    this.tls = parts.tls;
    // `done` reports a failed stop; the log reports it too, in case no caller awaits `done`
    this.#ended.promise.catch((error: unknown) => parts.log.error({ err: error }, "could not stop cleanly"));
  }

  /** Resolves when the daemon has stopped, for any reason */
  get done(): Promise<void> {
    return this.#ended.promise;
  }

  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  get killsSandboxes(): boolean {
    return this.#killsSandboxes;
  }

  own(stack: AsyncDisposableStack): void {
    this.#stack = stack;
  }

  /** Completes requests in progress within `drain_secs`; sandboxes keep running unless `killSandboxes` is set */
  stop(opts: StopOptions): Promise<void> {
    if (!this.#stopping.signal.aborted) {
      this.#killsSandboxes = opts.killSandboxes;
      this.#stopping.abort();
      this.#drainAndClose().then(this.#ended.resolve, this.#ended.reject);
    }
    return this.done;
  }

  /**
   * Handles SIGTERM. With `leave_secs` the VMs may end with this process: gateways move them to other nodes, and what is
   * left is suspended until the next daemon starts
   */
  async leave(): Promise<void> {
    const { config, cluster, manager, log } = this.#parts;
    if (config.leaveSecs > 0 && !this.stopping.aborted) {
      log.info({ leave_secs: config.leaveSecs }, "leaving: gateways move the sandboxes");
      try {
        // without a key of the cluster there are no gateways to wait for
        await manager.leave({ withinMs: cluster === null ? 0 : config.leaveSecs * 1000, signal: this.stopping });
      } catch (error) {
        log.error({ err: error }, "the sandboxes could not be kept");
      }
    }
    await this.stop({ killSandboxes: false });
  }

  /** A daemon without TCP opens a port of the loopback interface: the usual one if it is free */
  async listenForBrowsers(): Promise<string> {
    if (this.bind !== null) return this.bind;
    if (!this.listener || this.stopping.aborted) throw new ForkdError("STOPPING", "Cannot listen: the daemon is stopping.");
    const { listener } = this;
    this.#listening ??= listener(SETTINGS.bind.fallback).catch(async (error: unknown) => {
      if (!(error instanceof ForkdError)) throw error;
      return listener(ANY_LOOPBACK_PORT);
    });
    try {
      this.bind = await this.#listening;
      return this.bind;
    } finally {
      this.#listening = null;
    }
  }

  /** Checks and stops synchronously, so that no request can arrive in between */
  stopIfIdle(opts: StopOptions, own: AbortSignal): void {
    const isBusy = this.inFlight.hasOthers(own);
    if (isBusy || this.#parts.manager.idleSince === null) {
      const why = isBusy ? "it answers other requests" : "there are sandboxes, branches being written or VMMs that wait for a fork";
      throw new ForkdError("IN_USE", `Cannot stop the daemon: ${why}.`);
    }
    void this.stop(opts);
  }

  /** Handles SIGHUP: reopens the audit log and reloads the files of token and cluster key. On an error the old ones stay */
  async reload(): Promise<void> {
    const { audit, tokens, cluster, config, log } = this.#parts;
    await audit?.reopen();
    try {
      if (config.tokenFile !== null && (await tokens.loadFile(config.tokenFile)))
        this.inFlight.abortOf(TOKEN_FILE, new ForkdError("UNAUTHORIZED", "Cannot continue: the token was replaced."));
      if (cluster && config.clusterKeyFile !== null) cluster.keys = await readClusterKeys(config.clusterKeyFile);
      log.info("reloaded");
    } catch (error) {
      log.error({ err: error }, "cannot read a file of secrets; the previous ones stay");
    }
  }

  /** Stops the daemon after `exit_when_idle_secs` without use; returns a function that cancels the timer */
  watchIdleness(): () => void {
    const { config, manager, log } = this.#parts;
    const limitMs = config.exitWhenIdleSecs * 1000;
    if (limitMs === 0) return () => undefined;
    const timer = setInterval(
      () => {
        const { idleSince } = manager;
        if (idleSince === null || this.inFlight.count > 0) return;
        if (Date.now() - Math.max(idleSince, this.inFlight.lastMs) < limitMs) return;
        log.info({ idle_secs: config.exitWhenIdleSecs }, "the daemon is idle and ends");
        void this.stop({ killSandboxes: false });
      },
      Math.min(MAX_IDLE_CHECK_MS, limitMs / 4),
    );
    return () => clearInterval(timer);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop({ killSandboxes: false });
  }

  async #drainAndClose(): Promise<void> {
    const { config, log } = this.#parts;
    log.info({ in_flight: this.inFlight.count, kill_sandboxes: this.#killsSandboxes }, "stopping");
    if (!(await this.inFlight.idle(config.drainSecs * 1000))) {
      log.warn({ in_flight: this.inFlight.count }, "requests took too long to end and are cancelled");
      this.inFlight.abortAll(new ForkdError("STOPPING", "Cannot finish this: the daemon is stopping."));
      await this.inFlight.idle(ABORT_MS);
    }
    await this.#stack?.disposeAsync();
    log.info("stopped");
  }
}

async function openDb(path: string): Promise<Db> {
  // create the file with mode 0600 first: SQLite gives its WAL the same mode
  await (await open(path, "a", 0o600)).close();
  return new Db(path);
}

async function readTls(config: Config): Promise<Tls | null> {
  if (config.bind === null || config.tlsCert === null || config.tlsKey === null) return null;
  try {
    const tls = { cert: await readFile(config.tlsCert), key: await readFile(config.tlsKey) };
    // validate before anything starts, so that a wrong file is reported as such
    createSecureContext(tls);
    return tls;
  } catch (error) {
    throw new ForkdError("BAD_CONFIG", `Cannot serve TLS: ${messageOf(error)}.`, { cause: error });
  }
}

/** Removes a stale socket file first, which is safe because this process holds the lock */
async function listenUnix(api: Server, path: string): Promise<void> {
  await rm(path, { force: true });
  await listen(api, { path }, path);
  await chmod(path, 0o600);
}

async function listenTcp(api: Server, bind: string): Promise<string> {
  const { host, port } = splitBind(bind);
  await listen(api, { host, port }, bind);
  const { port: actual } = api.address() as AddressInfo;
  return `${host.includes(":") ? `[${host}]` : host}:${actual}`;
}

async function listen(api: Server, where: { path: string } | { host: string; port: number }, name: string): Promise<void> {
  followHandshakes(api);
  try {
    api.listen(where);
    await once(api, "listening");
  } catch (error) {
    const isTaken = (error as NodeJS.ErrnoException).code === "EADDRINUSE";
    throw new ForkdError("DAEMON_FAILED", `Cannot listen on ${name}: ${isTaken ? "another program uses it" : messageOf(error)}.`, {
      cause: error,
      ...(isTaken ? { hint: "Choose another address with --bind, or end the program that listens there." } : {}),
    });
  }
}
