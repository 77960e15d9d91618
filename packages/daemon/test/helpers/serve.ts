// The API over real sockets, with a database per test.

import { once } from "node:events";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { patience } from "../../../../tests/helpers/patience.ts";
import { pino } from "pino";
import { resolveConfig } from "../../src/config.ts";
import { E2b } from "../../src/e2b/e2b.ts";
import { resolveHome } from "@forkd/runtime/home";
import { AuthFailures } from "../../src/dispatch/auth-failures.ts";
import { Idempotency } from "../../src/rest/idempotency.ts";
import { InFlight } from "../../src/dispatch/in-flight.ts";
import { Proxy as GuestProxy } from "../../src/proxy/proxy.ts";
import { createApi } from "../../src/dispatch/dispatch.ts";
import { Rest } from "../../src/rest/rest.ts";
import { LIMITS, type Limits } from "../../src/streams/limits.ts";
import { Recipes } from "../../src/recipe/recipes.ts";
import { AuditLog } from "../../src/observe/audit.ts";
import { createLog } from "../../src/observe/log.ts";
import { Metrics } from "../../src/observe/metrics.ts";
import { AccessTokens } from "../../src/store/access-tokens.ts";
import { Db } from "../../src/store/db.ts";
import { IdempotencyStore } from "../../src/store/idempotency.ts";
import { MovedAccess } from "../../src/store/moved-access.ts";
import { Previews } from "../../src/store/previews.ts";
import { Projects } from "../../src/store/projects.ts";
import { Tokens } from "../../src/store/tokens.ts";
import { UiSessions } from "../../src/store/ui-sessions.ts";
import { UiFiles } from "../../src/ui/files.ts";
import { Ui } from "../../src/ui/ui.ts";
import { fakeManager } from "./fake-manager.ts";
import type { IncomingHttpHeaders, IncomingMessage, RequestOptions } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import type { ClaimReader } from "../../src/cluster/identity.ts";
import type { Tls } from "../../src/dispatch/listener.ts";
import type { Services } from "../../src/dispatch/services.ts";
import type { ManagerApi } from "../../src/service/manager.ts";

export const STORE_ID = "0123456789abcdef";

export type Reply = { status: number; headers: IncomingHttpHeaders; text: string; json: () => Record<string, unknown> };

export type Ask = {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Buffer | object;
  token?: string;
  /** TCP instead of the Unix socket */
  tcp?: boolean;
};

export type Fixture = {
  dir: string;
  socket: string;
  port: number;
  services: Services;
  db: Db;
  logged: () => string;
  stopping: AbortController;
  ask: (path: string, ask?: Ask) => Promise<Reply>;
  options: (ask: Ask) => RequestOptions;
};

export async function serve(
  t: TestContext,
  opts: {
    manager?: ManagerApi;
    limits?: Partial<Limits>;
    tls?: Tls;
    dbPath?: string;
    failures?: AuthFailures;
    cluster?: ClaimReader;
    settings?: Record<string, string>;
    /** the built dashboard; without it, the one of this repository */
    uiFolder?: string;
  } = {},
): Promise<Fixture> {
  const dir = await tempDir(t);
  const socket = join(dir, "api.sock");
  let logged = "";
  const log = createLog("debug", { write: (line: string) => void (logged += line) });
  const db = new Db(opts.dbPath ?? join(dir, "state.db"));
  const audit = await AuditLog.open(join(dir, "audit.log"), log);
  const stopping = new AbortController();
  const stop = (): undefined => undefined;
  const store = { id: STORE_ID, home: "/store" };
  const daemon = {
    version: "1.2.3",
    store,
    socket,
    bind: null,
    tls: false,
    startedAtMs: 0,
    stopping: stopping.signal,
    listenForBrowsers: async () => `127.0.0.1:${port}`,
    stop,
    stopIfIdle: stop,
  };
  const tokens = new Tokens(db);
  const projects = new Projects(db);
  const manager = opts.manager ?? fakeManager();
  const home = resolveHome({ FORKD_HOME: dir, FORKD_RUN: dir });
  const movedAccess = new MovedAccess(db);
  const services: Services = {
    manager,
    recipes: new Recipes(manager, { home, log }),
    daemon,
    config: await resolveConfig({ options: opts.settings ?? {}, env: {}, home }),
    metrics: new Metrics({ version: "1.2.3", branchConcurrency: 4 }),
    tokens,
    projects,
    previews: new Previews(db, tokens, { moved: movedAccess }),
    uiSessions: new UiSessions(db, tokens),
    accessTokens: new AccessTokens(db, tokens, movedAccess),
    movedAccess,
    cluster: opts.cluster ?? null,
    failures: opts.failures ?? new AuthFailures(),
    inFlight: new InFlight(),
    audit,
    log,
    limits: { ...LIMITS, ...opts.limits },
  };
  const proxy = new GuestProxy(services);
  const rest = new Rest(services, new Idempotency(new IdempotencyStore(db)));
  const frontEnds = { rest, e2b: new E2b(services, join(dir, "e2b-files")), port: proxy, ui: new Ui(services, new UiFiles(opts.uiFolder)) };
  const unix = createApi(services, frontEnds, { kind: "unix", tls: null });
  const tcp = createApi(services, frontEnds, { kind: "tcp", tls: opts.tls ?? null });
  await once(unix.listen({ path: socket }), "listening");
  await once(tcp.listen({ host: "127.0.0.1", port: 0 }), "listening");
  t.after(async () => {
    // Ends WebSockets, which closing the servers does not.
    stopping.abort();
    for (const api of [unix, tcp]) {
      const closed = once(api, "close");
      api.close();
      api.closeAllConnections();
      await closed;
    }
    proxy.close();
    await services.inFlight.idle(patience());
    await audit.close();
    db.close();
  });
  const { port } = tcp.address() as AddressInfo;
  const options = (ask: Ask): RequestOptions => ({
    ...(ask.tcp ? { host: "127.0.0.1", port } : { socketPath: socket }),
    method: ask.method ?? (ask.body === undefined ? "GET" : "POST"),
    headers: {
      ...(ask.token === undefined ? {} : { authorization: `Bearer ${ask.token}` }),
      ...(ask.body === undefined || Buffer.isBuffer(ask.body) ? {} : { "content-type": "application/json" }),
      ...ask.headers,
    },
    agent: false,
  });
  const ask = async (path: string, given: Ask = {}): Promise<Reply> => {
    const isTls = opts.tls !== undefined && given.tcp === true;
    return await send({ ...options(given), path, ...(isTls ? { rejectUnauthorized: false } : {}) }, given.body, isTls);
  };
  return { dir, socket, port, services, db, logged: () => logged, stopping, ask, options };
}

export async function tempDir(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-http-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  await chmod(dir, 0o700);
  return dir;
}

/** Waits until a count no longer grows after all queued work of this process has run */
export async function settled(count: () => number): Promise<void> {
  for (let before = -1; count() > before;) {
    before = count();
    for (let turn = 0; turn < 100; turn++) await nextTurn();
  }
}

export const silent = pino({ level: "silent" });

export function open(options: RequestOptions, body?: string | Buffer | object, isTls = false): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const request = (isTls ? httpsRequest : httpRequest)(options, resolve);
    request.once("error", reject);
    request.end(body === undefined || typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body));
  });
}

export async function readAll(response: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of response) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString("utf8");
}

async function send(options: RequestOptions, body: Ask["body"], isTls: boolean): Promise<Reply> {
  const response = await open(options, body, isTls);
  const text = await readAll(response);
  return { status: response.statusCode ?? 0, headers: response.headers, text, json: () => JSON.parse(text) as Record<string, unknown> };
}
