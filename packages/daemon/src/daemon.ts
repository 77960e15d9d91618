// The daemon: takes the lock, starts the manager, serves the API, and stops in the opposite order.

import { chmod, open, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { createSecureContext } from "node:tls";
import { splitBind } from "./config.ts";
import { E2b } from "./e2b/e2b.ts";
import { ForkdError, messageOf } from "./errors.ts";
import { prepareHome } from "./home.ts";
import { AuthFailures } from "./http/auth-failures.ts";
import { Idempotency } from "./http/idempotency.ts";
import { InFlight } from "./http/in-flight.ts";
import { ServerPool } from "./http/proxy/pool.ts";
import { buildApp } from "./http/server.ts";
import { LIMITS } from "./http/services.ts";
import { Manager } from "./manager/manager.ts";
import { AuditLog } from "./observe/audit.ts";
import { Metrics } from "./observe/metrics.ts";
import { AccessTokens } from "./store/access-tokens.ts";
import { Db } from "./store/db.ts";
import { IdempotencyStore } from "./store/idempotency.ts";
import { Previews } from "./store/previews.ts";
import { TOKEN_FILE, Tokens } from "./store/tokens.ts";
import { VERSION } from "./version.ts";
import type { AddressInfo } from "node:net";
import type { FastifyInstance } from "fastify";
import type { Config, ResolvedConfig } from "./config.ts";
import type { Home } from "./home.ts";
import type { Tls } from "./http/listener.ts";
import type { Limits, ManagerApi, Services } from "./http/services.ts";
import type { ManagerOptions } from "./manager/manager.ts";
import type { Logger } from "./observe/log.ts";
import type { Levels } from "./observe/metrics.ts";

const PRUNE_MS = 3_600_000;
/** How long work may take to notice that it was told to end */
const ABORT_MS = 5_000;
const MAX_IDLE_CHECK_MS = 10_000;

export type StopOptions = { killSandboxes: boolean };

/** The manager as the daemon sees it */
export type ManagerHandle = ManagerApi & {
  /** since when there are neither sandboxes nor pools, in ms; null while there are */
  readonly idleSince: number | null;
  gauges(): Promise<Levels>;
  /** HOST:PORT where the API is served */
  servesAt(bind: string): void;
  stop(opts: StopOptions): Promise<void>;
};

export type DaemonOptions = {
  config: ResolvedConfig;
  home: Home;
  log: Logger;
  /** for tests */
  startManager?: (opts: ManagerOptions) => Promise<ManagerHandle>;
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
  if (config.tokenFile !== null) await tokens.loadFile(config.tokenFile);
  const tls = await readTls(config);
  const idempotencyStore = new IdempotencyStore(db);
  idempotencyStore.prune();
  const audit = config.auditLog === null ? null : stack.use(await AuditLog.open(config.auditLog, log));
  const metrics = new Metrics({ version: VERSION, branchConcurrency: config.branchConcurrency });

  const startManager = opts.startManager ?? ((options: ManagerOptions) => Manager.start(options));
  const { parallelism } = config;
  const manager = await startManager({
    home,
    db,
    settings: config,
    parallelism,
    meter: metrics,
    log,
    version: VERSION,
    audit: audit ? (entry) => audit.write(entry) : undefined,
  });
  metrics.collectFrom(() => manager.gauges());
  const daemon = new Daemon({ config, log, manager, tokens, audit, socket: join(home.run, "forkd.sock"), tls: tls !== null });
  stack.defer(() => manager.stop({ killSandboxes: daemon.killsSandboxes }));

  const pool = new ServerPool();
  stack.defer(() => pool.close());
  const base: Omit<Services, "e2b"> = {
    manager,
    daemon,
    config: opts.config,
    metrics,
    tokens,
    previews: new Previews(db, tokens),
    accessTokens: new AccessTokens(db, tokens),
    pool,
    failures: new AuthFailures(),
    idempotency: new Idempotency(idempotencyStore),
    inFlight: daemon.inFlight,
    audit,
    log,
    limits: { ...LIMITS, ...opts.limits },
  };
  const services: Services = { ...base, e2b: new E2b(base, join(home.cache, "e2b-files")) };
  const unix = buildApp(services, { kind: "unix", tls: null });
  stack.defer(() => close(unix));
  await listenUnix(unix, daemon.socket);
  if (config.bind !== null) {
    const tcp = buildApp(services, { kind: "tcp", tls });
    stack.defer(() => close(tcp));
    daemon.bind = await listenTcp(tcp, config.bind);
    manager.servesAt(daemon.bind);
  }
  const prune = setInterval(() => idempotencyStore.prune(), PRUNE_MS);
  stack.defer(() => clearInterval(prune));
  stack.defer(daemon.watchIdleness());
  daemon.own(stack.move());
  log.info({ version: VERSION, pid: process.pid, socket: daemon.socket, bind: daemon.bind, home: home.root }, "ready");
  return daemon;
}

type Parts = {
  config: Config;
  log: Logger;
  manager: ManagerHandle;
  tokens: Tokens;
  audit: AuditLog | null;
  socket: string;
  tls: boolean;
};

export class Daemon implements AsyncDisposable {
  readonly version: string = VERSION;
  readonly socket: string;
  readonly tls: boolean;
  readonly startedAtMs: number = Date.now();
  readonly inFlight: InFlight = new InFlight();
  /** HOST:PORT as it is served; null without TCP */
  bind: string | null = null;
  readonly #parts: Parts;
  readonly #stopping = new AbortController();
  readonly #ended = Promise.withResolvers<void>();
  #stack: AsyncDisposableStack | null = null;
  #killsSandboxes = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.socket = parts.socket;
    this.tls = parts.tls;
    // stopping that fails is told by `done`, and by the log to those who do not wait for it
    this.#ended.promise.catch((error: unknown) => parts.log.error({ err: error }, "could not stop in order"));
  }

  /** When it has stopped, for whatever reason */
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

  /** What is in flight is answered first, within `drain_secs`; the sandboxes go on unless asked otherwise */
  stop(opts: StopOptions): Promise<void> {
    if (!this.#stopping.signal.aborted) {
      this.#killsSandboxes = opts.killSandboxes;
      this.#stopping.abort();
      this.#drainAndClose().then(this.#ended.resolve, this.#ended.reject);
    }
    return this.done;
  }

  /** Looks and stops in one go, so that nobody can come in between */
  stopIfIdle(opts: StopOptions, own: AbortSignal): void {
    const isBusy = this.inFlight.hasOthers(own);
    if (isBusy || this.#parts.manager.idleSince === null) {
      const why = isBusy ? "it answers other requests" : "there are sandboxes, branches being written or VMMs that wait for a fork";
      throw new ForkdError("IN_USE", `Cannot stop the daemon: ${why}.`);
    }
    void this.stop(opts);
  }

  /** After SIGHUP: new audit file, new token. What is wrong with them changes nothing */
  async reload(): Promise<void> {
    const { audit, tokens, config, log } = this.#parts;
    await audit?.reopen();
    try {
      if (config.tokenFile !== null && (await tokens.loadFile(config.tokenFile)))
        this.inFlight.abortOf(TOKEN_FILE, new ForkdError("UNAUTHORIZED", "Cannot go on with this: its token was replaced."));
      log.info("reloaded");
    } catch (error) {
      log.error({ err: error }, "cannot take the token file; the token from before stays");
    }
  }

  /** Ends a daemon that nobody needs; returns what ends the watch */
  watchIdleness(): () => void {
    const { config, manager, log } = this.#parts;
    const limitMs = config.exitWhenIdleSecs * 1000;
    if (limitMs === 0) return () => undefined;
    const timer = setInterval(
      () => {
        const { idleSince } = manager;
        if (idleSince === null || this.inFlight.count > 0) return;
        if (Date.now() - Math.max(idleSince, this.inFlight.lastMs) < limitMs) return;
        log.info({ idle_secs: config.exitWhenIdleSecs }, "nobody needs this daemon any more");
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
  // made by us, so that nobody else can read it; what SQLite puts beside it gets the same mode
  await (await open(path, "a", 0o600)).close();
  return new Db(path);
}

async function readTls(config: Config): Promise<Tls | null> {
  if (config.bind === null || config.tlsCert === null || config.tlsKey === null) return null;
  try {
    const tls = { cert: await readFile(config.tlsCert), key: await readFile(config.tlsKey) };
    // looked at before anything is started, so that a wrong file is told as what it is
    createSecureContext(tls);
    return tls;
  } catch (error) {
    throw new ForkdError("BAD_CONFIG", `Cannot serve TLS: ${messageOf(error)}.`, { cause: error });
  }
}

/** We hold the lock: a socket that lies there belongs to nobody */
async function listenUnix(app: FastifyInstance, path: string): Promise<void> {
  await rm(path, { force: true });
  await listen(app, { path }, path);
  await chmod(path, 0o600);
}

async function listenTcp(app: FastifyInstance, bind: string): Promise<string> {
  const { host, port } = splitBind(bind);
  await listen(app, { host, port }, bind);
  const { port: actual } = app.server.address() as AddressInfo;
  return `${host.includes(":") ? `[${host}]` : host}:${actual}`;
}

async function listen(app: FastifyInstance, where: { path: string } | { host: string; port: number }, name: string): Promise<void> {
  try {
    await app.listen(where);
  } catch (error) {
    const isTaken = (error as NodeJS.ErrnoException).code === "EADDRINUSE";
    throw new ForkdError("DAEMON_FAILED", `Cannot listen on ${name}: ${isTaken ? "something else does" : messageOf(error)}.`, {
      cause: error,
      ...(isTaken ? { hint: "Choose another address with --bind, or end what listens there." } : {}),
    });
  }
}

/** Everything worth waiting for has been answered */
async function close(app: FastifyInstance): Promise<void> {
  app.server.closeAllConnections();
  await app.close();
}
