// The API over real sockets, with a database of its own.

import { chmod, mkdtemp, rm } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { resolveConfig } from "../../../src/config.ts";
import { E2b } from "../../../src/e2b/e2b.ts";
import { resolveHome } from "../../../src/home.ts";
import { AuthFailures } from "../../../src/http/auth-failures.ts";
import { Idempotency } from "../../../src/http/idempotency.ts";
import { InFlight } from "../../../src/http/in-flight.ts";
import { ServerPool } from "../../../src/http/proxy/pool.ts";
import { buildApp } from "../../../src/http/server.ts";
import { LIMITS } from "../../../src/http/services.ts";
import { AuditLog } from "../../../src/observe/audit.ts";
import { createLog } from "../../../src/observe/log.ts";
import { Metrics } from "../../../src/observe/metrics.ts";
import { AccessTokens } from "../../../src/store/access-tokens.ts";
import { Db } from "../../../src/store/db.ts";
import { IdempotencyStore } from "../../../src/store/idempotency.ts";
import { Previews } from "../../../src/store/previews.ts";
import { Tokens } from "../../../src/store/tokens.ts";
import { fakeManager } from "./fake-manager.ts";
import type { IncomingHttpHeaders, IncomingMessage, RequestOptions } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import type { Tls } from "../../../src/http/listener.ts";
import type { Limits, ManagerApi, Services } from "../../../src/http/services.ts";

export type Reply = { status: number; headers: IncomingHttpHeaders; text: string; json: () => Record<string, unknown> };

export type Ask = {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Buffer | object;
  token?: string;
  /** over TCP; without it, over the Unix socket */
  tcp?: boolean;
};

export type Fixture = {
  dir: string;
  socket: string;
  port: number;
  services: Services;
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
    settings?: Record<string, string>;
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
  const daemon = { version: "1.2.3", socket, bind: null, tls: false, startedAtMs: 0, stopping: stopping.signal, stop, stopIfIdle: stop };
  const tokens = new Tokens(db);
  const pool = new ServerPool();
  const base: Omit<Services, "e2b"> = {
    manager: opts.manager ?? fakeManager(),
    daemon,
    config: await resolveConfig({ options: opts.settings ?? {}, env: {}, home: resolveHome({ FORKD_HOME: dir, FORKD_RUN: dir }) }),
    metrics: new Metrics({ version: "1.2.3", branchConcurrency: 4 }),
    tokens,
    previews: new Previews(db, tokens),
    accessTokens: new AccessTokens(db, tokens),
    pool,
    failures: opts.failures ?? new AuthFailures(),
    idempotency: new Idempotency(new IdempotencyStore(db)),
    inFlight: new InFlight(),
    audit,
    log,
    limits: { ...LIMITS, ...opts.limits },
  };
  const services: Services = { ...base, e2b: new E2b(base, join(dir, "e2b-files")) };
  const unix = buildApp(services, { kind: "unix", tls: null });
  const tcp = buildApp(services, { kind: "tcp", tls: opts.tls ?? null });
  await unix.listen({ path: socket });
  await tcp.listen({ host: "127.0.0.1", port: 0 });
  t.after(async () => {
    for (const app of [unix, tcp]) {
      app.server.closeAllConnections();
      await app.close();
    }
    pool.close();
    await services.inFlight.idle(1000);
    await audit.close();
    db.close();
  });
  const { port } = tcp.server.address() as AddressInfo;
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
  return { dir, socket, port, services, logged: () => logged, stopping, ask, options };
}

export async function tempDir(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-http-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  await chmod(dir, 0o700);
  return dir;
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
