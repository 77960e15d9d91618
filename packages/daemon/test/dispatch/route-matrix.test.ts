// Every route of both protocols with every kind of credential: access, response content and audit log.

import assert from "node:assert/strict";
import { createHash, createSecretKey } from "node:crypto";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { routes } from "../../src/api/routes.ts";
import { ClaimReader, IDENTITY_HEADER, signClaim } from "../../src/cluster/identity.ts";
import { ENVD_PORT, INTERPRETER_PORT } from "../../src/dispatch/target.ts";
import { controlRoutes } from "../../src/e2b/control/routes.ts";
import { envdRoutes } from "../../src/e2b/envd/serve.ts";
import { interpreterRoutes } from "../../src/e2b/interpreter/serve.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { pageKeyOf } from "../../src/store/ui-sessions.ts";
import { AuthFailures } from "../../src/dispatch/auth-failures.ts";
import { FakeEvents, sandboxInfo } from "../helpers/fake-manager.ts";
import { ANY_PROJECT, CONTROL, ENVD, INTERPRETER, NATIVE } from "../helpers/route-table.ts";
import { open, readAll, serve, STORE_ID, type Fixture } from "../helpers/serve.ts";
import { httpServer } from "../proxy/guest.ts";
import type { IncomingHttpHeaders } from "node:http";
import type { TestContext } from "node:test";
import type { Route } from "../../src/api/route.ts";
import type { SandboxInfo } from "../../src/api/sandbox.ts";
import type { ManagerApi } from "../../src/service/manager.ts";

const ID = "sb-abcdefgh234567xy";
const THEIRS = ID.replace("-", "");
const SANDBOX = {
  ...sandboxInfo(ID),
  name: "canary-name",
  snapshot_tag: "canary-tag",
  created_by: "maker",
  created_at_unix: 1,
  created_at_unix_ms: 1,
  last_active_unix: 1,
  expires_at_unix: null,
  network: { mode: "none", allow: [], egress_limit_bytes: null },
} as SandboxInfo;
const SNAPSHOT = {
  id: "canary-id",
  tag: "x",
  description: "canary-text",
  status: "ready",
  metadata: {},
  created_at_unix: 1,
  branched_from: null,
  ephemeral: false,
};
/** No answer to another project may contain one of these */
const CANARIES = ["canary", "maker", "im-1"];
const DOMAIN = "preview.test";
const FILE_TOKEN = "a+token/of-the.file";

const SCOPES = ["read", "exec", "admin", "operator"] as const;
type Scope = (typeof SCOPES)[number];
/**
 * `ui`: a dashboard with scope exec; `cookie`: its cookie without the header that only its page has; `foreign`: an admin of
 * another project, for which nothing of this one exists; `stated`: a gateway of the cluster states a principal of scope
 * exec; `forged`: the same with another key
 */
type Who = "nobody" | Scope | "foreign" | "revoked" | "preview" | "access" | "traffic" | "ui" | "cookie" | "stated" | "forged";
const EVERYBODY: Who[] = ["ui", "cookie", "nobody", ...SCOPES, "foreign", "revoked", "preview", "access", "traffic", "stated", "forged"];
const CLUSTER_KEY = createSecretKey(Buffer.from("the key of the cluster in this test"));

type Asked = { method: string; path: string; headers: Record<string, string>; body: string | undefined };

/** All credentials, by name */
type Secrets = Record<string, string>;

test("the matrix has every route, and no others", () => {
  const declared = (table: Record<string, string>): string[] => Object.keys(table).sort();
  assert.deepEqual(declared(NATIVE), Object.keys(routes).sort());
  assert.deepEqual(declared(CONTROL), [...new Set(controlRoutes.map(({ method, path }) => `${method} ${path}`))].sort());
  assert.deepEqual(declared(ENVD), Object.keys(envdRoutes).sort());
  assert.deepEqual(declared(INTERPRETER), interpreterRoutes.map(([method, path]) => `${method} ${path}`).sort());
});

test("forkd's own routes: by scope, and never with a link or an access token", async (t) => {
  const matrix = await Matrix.start(t);
  for (const [name, route] of Object.entries<Route>(routes)) {
    const [scope, status] = declaredOf(NATIVE, name);
    const method = route.method === "ALL" ? "GET" : route.method;
    const path = matrix.filled(route.path.replace(/\*$/, ""));
    const expected = (who: Who): number => {
      if (who === "forged") return 401;
      if (scope === "none") return status;
      if (who === "access" && name === "getMetrics") return 413; // with an access token this path is the sandbox's metrics
      if (who === "traffic" && name === "proxyRequest") return status; // traffic tokens are for this route
      if ((who === "ui" || who === "cookie") && name === "proxyRequest") return 401; // a guest's page would have the dashboard's origin
      if (who === "ui" && name === "createUiLink") return 403; // a session does not extend itself
      if (who === "cookie") return 403;
      if (who === "ui" || who === "stated") return byScope("exec", scope as Scope, status);
      if (who === "foreign") return foreignStatus(name, scope as Scope, status);
      return byScope(who, scope as Scope, status);
    };
    await matrix.ask({ route: name, method, path, hasBody: route.body !== undefined }, expected, (who) => matrix.nativeHeaders(who));
  }
  await matrix.check();
});

test("E2B's API: by scope, and never with a link or an access token", async (t) => {
  const matrix = await Matrix.start(t);
  for (const { method, path } of controlRoutes) {
    const route = `${method} ${path}`;
    const [scope, status] = declaredOf(CONTROL, route);
    const expected = (who: Who): number => {
      if (who === "forged") return 401;
      if (scope === "address") return status;
      if (who === "foreign") return foreignStatus(route, scope as Scope, status);
      return byScope(who === "stated" ? "exec" : who, scope as Scope, status);
    };
    await matrix.ask({ route, method, path: matrix.filled(path), hasBody: method !== "GET" }, expected, (who) => matrix.keyHeaders(who));
  }
  await matrix.check();
  const { secrets, fixture } = matrix;
  const shown = await fixture.ask(`/sandboxes/${THEIRS}`, { tcp: true, headers: { "x-api-key": secrets["exec token"] ?? "" } });
  assert.ok(shown.text.includes(secrets["access token"] ?? "?"), "a permitted caller gets the secret, so a leak would be visible");
});

test("servers of E2B in a sandbox: only with its access tokens", async (t) => {
  const matrix = await Matrix.start(t);
  const servers = [
    { port: ENVD_PORT, table: ENVD, known: Object.keys(envdRoutes), openTo: ["access"] },
    {
      port: INTERPRETER_PORT,
      table: INTERPRETER,
      known: interpreterRoutes.map(([method, path]) => `${method} ${path}`),
      openTo: ["access", "traffic"],
    },
  ];
  for (const { port, table, known, openTo } of servers) {
    for (const route of known) {
      const [kind, status] = declaredOf(table, route);
      const [method = "", path = ""] = route.split(" ");
      const expected = (who: Who): number => (who !== "forged" && (kind === "health" || openTo.includes(who)) ? status : 401);
      await matrix.ask({ route: `${port} ${route}`, method, path: matrix.filled(path), hasBody: method === "POST" }, expected, (who) => ({
        ...matrix.insideHeaders(who),
        "e2b-sandbox-id": THEIRS,
        "e2b-sandbox-port": String(port),
      }));
    }
  }
  await matrix.check();
});

test("no token reaches a guest, in any position and by any name of the guest", async (t) => {
  const matrix = await Matrix.start(t);
  const { secrets, guestPort } = matrix;
  const places: Record<string, { path: string; headers: Record<string, string> }> = {
    path: { path: `/v1/sandboxes/${ID}/proxy/${guestPort}/app`, headers: {} },
    host: { path: "/app", headers: { host: `${guestPort}-${ID}.${DOMAIN}` } },
    headers: { path: "/app", headers: { "e2b-sandbox-id": THEIRS, "e2b-sandbox-port": String(guestPort) } },
  };
  let reached = 0;
  for (const [place, { path, headers }] of Object.entries(places)) {
    for (const [what, secret] of Object.entries(secrets)) {
      const before = matrix.atGuest.length;
      const basic = Buffer.from(`user:${secret}`).toString("base64");
      const { status } = await matrix.fixture.ask(`${path}?a=1&token=${encodeURIComponent(secret)}&${secret}=1`, {
        tcp: true,
        headers: {
          ...headers,
          "x-forkd-token": secrets["exec token"] ?? "",
          "e2b-traffic-access-token": secrets["traffic token"] ?? "",
          "x-api-key": secret,
          "x-access-token": secret,
          authorization: `Bearer ${secret}`,
          "x-basic": `Basic ${basic}`,
          "x-own": secret,
          referer: `http://a/?key=${encodeURIComponent(secret)}`,
          cookie: `theirs=1; session=${secret}; forkd_preview=${secrets["preview link"]}`,
        },
      });
      assert.equal(status, 200, `${place} ${what}`);
      const asked = matrix.atGuest.slice(before).join("\n");
      assert.match(asked, /theirs=1/);
      matrix.refuseSecrets(asked, `${place}: ${what}`);
      assert.ok(!asked.includes(basic), `${place}: ${what} as a password`);
      reached++;
    }
  }
  assert.equal(reached, 3 * Object.keys(secrets).length);
});

class Matrix {
  readonly fixture: Fixture;
  readonly secrets: Secrets;
  readonly hidden: Secrets;
  readonly guestPort: number;
  /** requests that the server in the guest received */
  readonly atGuest: string[];
  readonly #wrong: string[] = [];
  readonly #callers = new Map<string, { who: Who; status: number; route: string }>();

  private constructor(fixture: Fixture, secrets: Secrets, guest: { port: number; asked: string[] }) {
    this.fixture = fixture;
    this.secrets = secrets;
    this.hidden = hiddenOf(fixture, secrets);
    this.guestPort = guest.port;
    this.atGuest = guest.asked;
  }

  static async start(t: TestContext): Promise<Matrix> {
    const asked: string[] = [];
    const port = await httpServer(t, (request, response) => {
      asked.push(`${request.url}\n${request.rawHeaders.join("\n")}`);
      response.end("guest");
    });
    // the matrix sends many wrong tokens from one address
    const failures = new AuthFailures({ max: Infinity });
    const cluster = new ClaimReader([CLUSTER_KEY]);
    const fixture = await serve(t, { manager: manager(), failures, cluster, settings: { "proxy-domain": `http://${DOMAIN}` } });
    return new Matrix(fixture, await secretsOf(fixture, port), { port, asked });
  }

  filled(path: string): string {
    return path
      .replace("/sandboxes/:id", `/sandboxes/${path.startsWith("/v1/") ? ID : THEIRS}`)
      .replace(":port", String(this.guestPort))
      .replaceAll(/:\w+/g, "x");
  }

  nativeHeaders(who: Who): Record<string, string> {
    const token = this.#tokenOf(who);
    if (who === "preview") return { authorization: `Bearer ${token}`, "x-forkd-token": token, cookie: `forkd_preview=${token}` };
    return { ...this.accessHeaders(who), ...(token === "" ? {} : { authorization: `Bearer ${token}` }), ...this.#uiHeaders(who) };
  }

  keyHeaders(who: Who): Record<string, string> {
    const token = this.#tokenOf(who);
    return { ...this.accessHeaders(who), ...(token === "" ? {} : { "x-api-key": token }), ...this.#uiHeaders(who) };
  }

  /** Also sends forkd's tokens in the headers of access tokens */
  insideHeaders(who: Who): Record<string, string> {
    const token = this.#tokenOf(who);
    if (token === "" || who === "access" || who === "traffic") return { ...this.accessHeaders(who), ...this.#uiHeaders(who) };
    return {
      "x-access-token": token,
      "x-api-key": token,
      "x-forkd-token": token,
      authorization: `Bearer ${token}`,
      cookie: `forkd_preview=${token}`,
    };
  }

  accessHeaders(who: Who): Record<string, string> {
    const token = this.#tokenOf(who);
    if (token === "") return {};
    return who === "traffic" ? { "e2b-traffic-access-token": token } : who === "access" ? { "x-access-token": token } : {};
  }

  /** Requests one route with all credentials in parallel */
  async ask(
    { route, method, path, hasBody }: { route: string; method: string; path: string; hasBody: boolean },
    expected: (who: Who) => number,
    headersOf: (who: Who) => Record<string, string>,
  ): Promise<void> {
    const body = hasBody ? "{}" : undefined;
    // explicit: node sends no length for methods that rarely have a body
    const type = hasBody ? { "content-type": "application/json", "content-length": "2" } : {};
    const askAs = async (who: Who): Promise<void> => {
      const id = `m${this.#callers.size}`;
      this.#callers.set(id, { who, status: 0, route });
      const headers = { ...type, ...headersOf(who), ...this.#statementOf(who, method, path), "x-request-id": id };
      const { status, shown } = await this.#send({ method, path, headers, body });
      this.#callers.set(id, { who, status, route });
      if (status !== expected(who)) this.#wrong.push(`${route}: ${who} got ${status} instead of ${expected(who)}: ${shown.slice(-200)}`);
      const mayHave = ["exec", "admin", "operator", "ui", "stated"].includes(who);
      if (who === "foreign") for (const canary of CANARIES) assert.ok(!shown.includes(canary), `${route} shows ${who} ${canary}`);
      if (!mayHave) this.refuseSecrets(shown, `${route} shows ${who}`);
      refuse(this.hidden, shown, `${route} shows ${who}`);
    };
    // this route ends the sessions of the other callers
    if (route === "deleteUiSessions") for (const who of EVERYBODY) await askAs(who);
    else await Promise.all(EVERYBODY.map(askAs));
  }

  /** Checks the results and the audit log, and that the logs contain no secrets */
  async check(): Promise<void> {
    assert.deepEqual(this.#wrong, []);
    const { services, dir, logged } = this.fixture;
    await services.audit?.flush();
    const text = await readFile(join(dir, "audit.log"), "utf8");
    this.refuseSecrets(text + logged(), "the logs hold");
    const entries = text.trim().split("\n");
    for (const line of entries) {
      const { request_id: id, principal, maker, sandbox } = JSON.parse(line) as Record<string, string | null>;
      const asked = this.#callers.get(id ?? "");
      assert.ok(asked, line);
      assert.equal(principal, principalOf(asked), `${asked.route} by ${asked.who}: ${line}`);
      if (sandbox === ID && asked.status !== 401 && asked.who !== "cookie") assert.equal(maker, "maker", line);
    }
    assert.ok(entries.length > this.#callers.size / 2, `${entries.length} of ${this.#callers.size}`);
  }

  refuseSecrets(text: string, where: string): void {
    refuse(this.secrets, text, where);
  }

  #tokenOf(who: Who): string {
    const names: Partial<Record<Who, string>> = { preview: "preview link", access: "access token", traffic: "traffic token" };
    return ["nobody", "ui", "cookie", "stated", "forged"].includes(who) ? "" : (this.secrets[names[who] ?? `${who} token`] ?? "");
  }

  #statementOf(who: Who, method: string, url: string): Record<string, string> {
    if (who !== "stated" && who !== "forged") return {};
    const keys = [who === "stated" ? CLUSTER_KEY : createSecretKey(Buffer.from("another key that is as long as the right one"))];
    const claim = {
      name: who,
      scope: "exec",
      project: null,
      max_sandboxes: null,
      stamp: "s",
      since: 1,
      remote: "192.0.2.1",
      revoked: [],
      elsewhere: null,
    };
    return { [IDENTITY_HEADER]: signClaim({ ...claim, scope: "exec" }, { method, url }, keys) };
  }

  /** A new session each time: a route of the matrix ends them all */
  #uiHeaders(who: Who): Record<string, string> {
    if (who !== "ui" && who !== "cookie") return {};
    const token = uiSessionOf(this.fixture);
    return { cookie: `forkd_ui_${STORE_ID}=${token}`, ...(who === "ui" ? { "x-forkd-ui": pageKeyOf(token) } : {}) };
  }

  async #send({ method, path, headers, body }: Asked): Promise<{ status: number; shown: string }> {
    const response = await open({ ...this.fixture.options({ tcp: true, method, headers }), path }, body);
    const { statusCode: status = 0, headers: given } = response;
    // an event stream does not end, so read only its first piece
    if (given["content-type"] === "text/event-stream") {
      const [piece] = (await once(response, "data")) as [Buffer];
      response.destroy();
      return { status, shown: shownOf(given, piece.toString()) };
    }
    return { status, shown: shownOf(given, await readAll(response)) };
  }
}

function refuse(secrets: Secrets, text: string, where: string): void {
  for (const [what, secret] of Object.entries(secrets)) {
    // also without the prefix, which is the form that E2B's SDKs expect
    const bare = secret.replace(/^fk[dpu]_/, "");
    assert.ok(!text.includes(bare) && !text.includes(encodeURIComponent(bare)), `${where} the ${what}`);
  }
}

function shownOf(headers: IncomingHttpHeaders, body: string): string {
  return `${JSON.stringify(headers)}\n${body}`;
}

function declaredOf(table: Record<string, string>, route: string): [who: string, status: number] {
  const declared = table[route];
  assert.ok(declared, `${route}: say in helpers/route-table.ts who may use it`);
  const [who = "", status = ""] = declared.split(" ");
  return [who, Number(status)];
}

/** Bad requests and missing scopes are found first; then the thing does not exist */
function foreignStatus(route: string, needed: Scope, status: number): number {
  const own = byScope("admin", needed, status);
  return own === 403 || own === 400 || own === 501 || ANY_PROJECT.has(route) ? own : 404;
}

function byScope(who: Who, needed: Scope, status: number): number {
  const rank = SCOPES.indexOf(who as Scope);
  if (rank < 0) return 401;
  return rank >= SCOPES.indexOf(needed) ? status : 403;
}

/** Principal of an authenticated caller in the audit log */
function principalOf({ who, status, route }: { who: Who; status: number; route: string }): string | null {
  if (status === 401 || route.endsWith(" /health") || route === "getHealth" || route === "getReadiness") return null;
  const others: Partial<Record<Who, string | null>> = {
    foreign: "other/foreign",
    access: "access:envd",
    traffic: "access:traffic",
    ui: "ui:exec",
    cookie: null,
  };
  return who in others ? (others[who] ?? null) : who;
}

function uiSessionOf({ services }: Pick<Fixture, "services">): string {
  const { code } = services.uiSessions.createLink({ principal: "exec", project: "default", scope: "exec" }, 3600);
  const opened = services.uiSessions.open(code);
  assert.ok(opened);
  return opened.token;
}

async function secretsOf({ services, dir }: Fixture, port: number): Promise<Secrets> {
  const { tokens, accessTokens, previews, projects } = services;
  projects.create({ name: "other" });
  const created = [...SCOPES, "foreign", "revoked", "maker"].map((name) => {
    const scope = SCOPES.find((known) => known === name) ?? "admin";
    const project = name === "foreign" ? "other" : "default";
    return [`${name} token`, tokens.create({ name, project, scope, max_sandboxes: null }).token] as const;
  });
  tokens.revoke("revoked");
  const file = join(dir, "token");
  await writeFile(file, FILE_TOKEN, { mode: 0o600 });
  await tokens.loadFile(file);
  return {
    ...Object.fromEntries(created),
    "token file's token": FILE_TOKEN,
    "preview link": previews.create({ sandbox: ID, port, expiresInSecs: 3600, principal: "maker" }).token,
    "dashboard's session": uiSessionOf({ services }),
    "dashboard's link": services.uiSessions.createLink({ principal: "exec", project: "default", scope: "exec" }, 3600).code,
    "access token": accessTokens.of(SANDBOX, "envd"),
    "traffic token": accessTokens.of(SANDBOX, "traffic"),
  };
}

/** The daemon's keys and the hashes of the credentials, which no response may contain */
function hiddenOf({ db }: Fixture, secrets: Secrets): Secrets {
  const keys = db
    .all("SELECT key, value FROM meta WHERE key LIKE '%_key'")
    .map(({ key, value }) => [`daemon's ${String(key)}`, String(value)]);
  assert.equal(keys.length, 2);
  const hashes = Object.entries(secrets).map(([what, secret]) => [
    `hash of the ${what}`,
    createHash("sha256").update(secret).digest("hex"),
  ]);
  return Object.fromEntries([...keys, ...hashes]) as Secrets;
}

type Method = (...given: unknown[]) => unknown;

/** Methods that concern no project, or say in their answer which one it is */
const WITHOUT_PROJECT = new Set([
  "sandboxes.makers",
  "ports.find",
  "quotas.request",
  "quotas.use",
  "packs.keys",
  "packs.key",
  "packs.createKey",
  "packs.removeKey",
]);
const OF_EVERY_PROJECT = new Set(["packs.unpack", "hub.list"]);

/** Everything is in the project `default`: for others there is nothing. A method that is not told the project fails */
function inOneProject(name: string, method: Method): Method {
  if (WITHOUT_PROJECT.has(name)) return method;
  return (...given) => {
    const asked = given.find((each): each is { project: string } => typeof each === "object" && each !== null && "project" in each);
    if (!asked) assert.fail(`${name} was not told the project`);
    if (asked.project === "default" || OF_EVERY_PROJECT.has(name)) return method(...given);
    if (name === "snapshots.list" || name === "sandboxes.list") return page([]);
    if (name === "images.list" || name === "workspaces.list") return [];
    if (name === "tree") return { roots: [] };
    if (name === "stats") return [];
    throw new ForkdError("NOT_FOUND", "There is no such thing.");
  };
}

function page<T>(items: T[]): { items: T[]; nextCursor: null } {
  return { items, nextCursor: null };
}

/** Implements only read operations; all others are refused with 413 */
function manager(): ManagerApi {
  const events = new FakeEvents();
  events.add({ type: "sandbox.created", sandbox: ID, reason: "canary" });
  const parts: Record<string, Record<string, unknown>> = {
    sandboxes: {
      list: () => page([SANDBOX]),
      makers: () => [SANDBOX],
      get: (id: string) => {
        if (id === ID) return SANDBOX;
        throw new ForkdError("NOT_FOUND", `There is no sandbox ${id}.`);
      },
      stats: async () => ({ id: ID }),
      lease: async () => ({ release: () => undefined }),
    },
    networks: { get: () => ({ mode: "none" }) },
    execution: { logs: () => [`a line\n`] },
    quotas: { request: () => undefined, use: (project: string) => ({ project }) },
    ports: {
      find: (id: string) => (id === ID ? SANDBOX : undefined),
      open: async () => ({
        id: ID,
        close: () => undefined,
        explain: (error: unknown) => error,
        connect: async (port: number) => connect({ port, host: "127.0.0.1", allowHalfOpen: true }),
      }),
    },
    snapshots: { list: async () => page([SNAPSHOT]), get: async () => SNAPSHOT, details: async () => SNAPSHOT },
    images: { list: async () => [{ id: "im-1" }], get: async () => ({ id: "im-1" }) },
    packs: { keys: async () => [{ name: "x" }], key: async () => ({ name: "x" }) },
    workspaces: { list: async () => [{ name: "x" }], get: async () => ({ name: "x" }) },
  };
  const nothing = (): never => {
    throw new ForkdError("IMAGE_TOO_LARGE", "The fake has nothing to do it with.");
  };
  const partOf = (name: string): object =>
    new Proxy(parts[name] ?? {}, {
      get: (part, method: string) => inOneProject(`${name}.${method}`, (part[method as never] ?? nothing) as Method),
    });
  const whole: Record<string, unknown> = {
    events,
    status: async () => ({ limits: {}, disk: {} }),
    tree: inOneProject("tree", async () => ({ roots: ["canary"] })),
    stats: inOneProject("stats", async () => ["canary"]),
    gc: nothing,
    refuseOwner: async () => undefined,
    moves: { nodeOf: () => undefined },
  };
  return new Proxy(whole, { get: (known, name: string) => (name in known ? known[name] : partOf(name)) }) as unknown as ManagerApi;
}
