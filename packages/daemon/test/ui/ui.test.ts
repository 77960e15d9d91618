// The dashboard's front end: files and their headers, login, cookie, and which requests the cookie allows.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { test, type TestContext } from "node:test";
import { WebSocket } from "ws";
import { patience } from "../../../../tests/helpers/patience.ts";
import { identityOf } from "../../src/dispatch/ui-session.ts";
import { isLocal } from "../../src/service/caller.ts";
import { open, serve, STORE_ID, tempDir, type Ask, type Fixture, type Reply } from "../helpers/serve.ts";

const PAGE = "<!doctype html><title>forkd</title>";
const SCRIPT = "console.log(1)";
const COOKIE = `forkd_ui_${STORE_ID}`;

async function start(t: TestContext, settings: Record<string, string> = {}): Promise<Fixture> {
  const uiFolder = join(await tempDir(t), "ui");
  await mkdir(uiFolder);
  await writeFile(join(uiFolder, "index.html"), PAGE);
  await writeFile(join(uiFolder, "main-ABC123.js"), SCRIPT);
  return serve(t, { uiFolder, settings });
}

type LoggedIn = { headers: Record<string, string>; cookie: string; key: string };

async function link(fixture: Fixture, body: object = {}): Promise<string> {
  const { status, json } = await fixture.ask("/v1/ui/links", { body });
  assert.equal(status, 201);
  return String(json()["url"]);
}

async function logIn(fixture: Fixture, url: string, headers: Record<string, string> = {}): Promise<Reply> {
  return fixture.ask("/ui/session", { tcp: true, body: { code: url.split("#login=")[1] }, headers });
}

async function loggedIn(fixture: Fixture, body: object = {}): Promise<LoggedIn> {
  const { status, headers, json } = await logIn(fixture, await link(fixture, body));
  assert.equal(status, 201);
  const [cookie = ""] = headers["set-cookie"]?.[0]?.split(";") ?? [];
  const key = String(json()["key"]);
  return { cookie, key, headers: { cookie, "x-forkd-ui": key } };
}

async function statusOf(fixture: Fixture, path: string, ask: Ask): Promise<number> {
  return (await fixture.ask(path, { tcp: true, ...ask })).status;
}

test("the page and its files need no login, forbid inline script and frames, and hashed files never change", async (t) => {
  const fixture = await start(t);
  for (const path of ["/ui", "/ui/", "/ui/sandboxes/web/files"]) {
    const { status, text, headers } = await fixture.ask(path, { tcp: true });
    assert.equal(status, 200);
    assert.equal(text, PAGE);
    const policy = String(headers["content-security-policy"]);
    for (const part of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "connect-src 'self'", "form-action 'none'"])
      assert.ok(policy.includes(part), part);
    assert.ok(!/script-src[^;]*unsafe/.test(policy));
    assert.equal(headers["x-frame-options"], "DENY");
    assert.equal(headers["x-content-type-options"], "nosniff");
    assert.equal(headers["cache-control"], "no-cache");
    assert.equal(headers["referrer-policy"], "no-referrer");
  }
  const script = await fixture.ask("/ui/assets/main-ABC123.js", { tcp: true, headers: { "accept-encoding": "br, gzip" } });
  assert.equal(script.headers["cache-control"], "public, max-age=31536000, immutable");
  assert.equal(script.headers["content-encoding"], "gzip");
  for (const path of ["/ui/assets/none.js", "/ui/assets/..%2f..%2fpackage.json", "/ui/assets/../../package.json"]) {
    const { status, text } = await fixture.ask(path, { tcp: true });
    assert.ok(status === 404 || text === PAGE, path);
  }
  assert.equal(await statusOf(fixture, "/ui/", { method: "POST", body: {} }), 405);
});

test("a daemon without a built dashboard says how to build it", async (t) => {
  const fixture = await serve(t, { uiFolder: join(await tempDir(t), "missing") });
  const { status, json } = await fixture.ask("/ui/", { tcp: true });
  assert.equal(status, 404);
  assert.match(String(json()["hint"]), /make setup/);
});

test("a link logs in once; the cookie is HttpOnly and SameSite=Strict, and the answer is not cached", async (t) => {
  const fixture = await start(t);
  const url = await link(fixture, { scope: "read", session_secs: 600 });
  assert.match(url, /^http:\/\/forkd\.localhost:\d+\/ui\/#login=fku_[0-9a-f]{64}$/);
  const { status, headers, json } = await logIn(fixture, url);
  assert.equal(status, 201);
  const cookie = headers["set-cookie"]?.[0] ?? "";
  assert.match(cookie, new RegExp(`^${COOKIE}=fku_[0-9a-f]{64}; Path=/; HttpOnly; SameSite=Strict; Max-Age=(600|599)$`));
  assert.equal(headers["cache-control"], "no-store");
  const { scope, principal } = json();
  assert.deepEqual({ scope, principal }, { scope: "read", principal: "local" });
  assert.equal((await logIn(fixture, url)).status, 401);
  const secure = await logIn(fixture, await link(fixture), { origin: "https://forkd.localhost", host: "forkd.localhost" });
  assert.match(secure.headers["set-cookie"]?.[0] ?? "", /^__Host-forkd_ui_.*; Secure$/);
});

test("wrong links block the address, as wrong tokens do", async (t) => {
  const fixture = await start(t);
  for (let i = 0; i < 10; i++) assert.equal((await logIn(fixture, "#login=fku_wrong")).status, 401);
  assert.equal((await logIn(fixture, await link(fixture))).status, 429);
});

test("the cookie works only with the page's key, in reads and writes", async (t) => {
  const fixture = await start(t);
  const { headers, cookie, key } = await loggedIn(fixture);
  assert.equal(await statusOf(fixture, "/v1/tokens", { headers }), 200);
  assert.equal(await statusOf(fixture, "/v1/tokens", { headers, body: { name: "made", scope: "read" } }), 201);
  for (const wrong of [{ cookie }, { cookie, "x-forkd-ui": "1" }, { cookie, "x-forkd-ui": key.replace(/.$/, "x") }]) {
    assert.equal(await statusOf(fixture, "/v1/tokens", { headers: wrong }), 403);
    assert.equal(await statusOf(fixture, "/v1/tokens", { headers: wrong, body: { name: "other" } }), 403);
  }
  assert.equal(await statusOf(fixture, "/v1/tokens", { headers: { "x-forkd-ui": key } }), 401);
  assert.equal(await statusOf(fixture, "/v1/tokens", { headers: { ...headers, cookie: `${COOKIE}=fku_${"0".repeat(64)}` } }), 401);
  // another page below a common domain may have set a cookie of the same name
  assert.equal(await statusOf(fixture, "/v1/tokens", { headers: { ...headers, cookie: `${COOKIE}=tossed; ${cookie}` } }), 200);
});

test("pages of other origins are refused, also with cookie and key", async (t) => {
  const fixture = await start(t);
  const { headers } = await loggedIn(fixture);
  const host = `127.0.0.1:${fixture.port}`;
  assert.equal(await statusOf(fixture, "/version", { headers: { ...headers, origin: `http://${host}` } }), 200);
  for (const origin of [`http://8000-sb-x.${host}`, "http://127.0.0.1:1", "null", "https://evil.test"]) {
    assert.equal(await statusOf(fixture, "/version", { headers: { ...headers, origin } }), 403, origin);
    assert.equal((await logIn(fixture, await link(fixture), { origin })).status, 403, origin);
  }
});

test("a session has the scope of its link, at most the caller's, and cannot make links", async (t) => {
  const fixture = await start(t);
  const { headers } = await loggedIn(fixture, { scope: "read" });
  assert.equal(await statusOf(fixture, "/version", { headers }), 200);
  assert.equal(await statusOf(fixture, "/v1/tokens", { headers }), 403);
  assert.equal(await statusOf(fixture, "/v1/sandboxes/sb-x/processes", { headers }), 403);
  assert.equal(await statusOf(fixture, "/v1/ui/links", { headers, body: {} }), 403);
  const { token } = fixture.services.tokens.create({ name: "reader", scope: "read", max_sandboxes: null });
  assert.equal(await statusOf(fixture, "/v1/ui/links", { token, body: { scope: "exec" } }), 403);
  const made = await fixture.ask("/v1/ui/links", { tcp: true, token, body: {} });
  assert.deepEqual([made.status, made.json()["scope"]], [201, "read"]);
});

test("the user of the socket is not the local user in a browser, who has rights on host files", async (t) => {
  const { services } = await start(t);
  const made = services.uiSessions.open(
    services.uiSessions.createLink({ principal: "local", project: "default", scope: "admin" }, 600).code,
  );
  assert.ok(made);
  const { name: principal } = identityOf(made.session, services);
  assert.equal(principal, "ui:local");
  assert.equal(isLocal({ principal }), false);
});

test("preview hosts and paths of guests never serve the dashboard, nor accept its cookie", async (t) => {
  const fixture = await start(t, { "proxy-domain": "http://preview.test" });
  const { headers } = await loggedIn(fixture);
  const onGuest = await fixture.ask("/ui/", { tcp: true, headers: { ...headers, host: "8000-sb-abcdefgh234567xy.preview.test" } });
  assert.notEqual(onGuest.text, PAGE);
  assert.ok(onGuest.status >= 400);
  assert.equal(await statusOf(fixture, "/v1/sandboxes/sb-x/proxy/8000/ui/", { headers }), 401);
});

test("logging out ends the session and its streams; the audit log names the caller", async (t) => {
  const fixture = await start(t);
  const { headers } = await loggedIn(fixture);
  const stream = await open({ ...fixture.options({ tcp: true, headers }), path: "/v1/events" });
  await once(stream, "data");
  const ended = once(stream.resume(), "end");
  assert.equal(await statusOf(fixture, "/ui/session", { method: "DELETE", headers }), 204);
  await ended;
  assert.equal(await statusOf(fixture, "/version", { headers }), 401);
  const { services, dir } = fixture;
  await services.audit?.flush();
  const entries = (await readFile(join(dir, "audit.log"), "utf8")).trim().split("\n");
  const named = entries.map((line) => JSON.parse(line) as { path: string; principal: string | null; status: number });
  const of = (path: string): (string | null)[] => named.filter((entry) => entry.path === path).map(({ principal }) => principal);
  assert.deepEqual(of("/v1/ui/links"), ["local"]);
  assert.deepEqual(of("/ui/session"), ["ui:local", "ui:local"]);
  assert.ok(!entries.join("\n").includes("fku_"));
});

test("logging all browsers out ends their streams too", async (t) => {
  const fixture = await start(t);
  const { headers } = await loggedIn(fixture);
  const stream = await open({ ...fixture.options({ tcp: true, headers }), path: "/v1/events" });
  await once(stream, "data");
  const ended = once(stream.resume(), "end");
  assert.equal((await fixture.ask("/v1/ui/sessions", { method: "DELETE" })).status, 204);
  await ended;
  assert.equal(await statusOf(fixture, "/version", { headers }), 401);
});

test("a stream does not outlive its session", async (t) => {
  const fixture = await start(t);
  const { code } = fixture.services.uiSessions.createLink({ principal: "local", project: "default", scope: "read" }, 1);
  const { headers: given, json } = await logIn(fixture, `#login=${code}`);
  const headers = { cookie: given["set-cookie"]?.[0]?.split(";")[0] ?? "", "x-forkd-ui": String(json()["key"]) };
  const stream = await open({ ...fixture.options({ tcp: true, headers }), path: "/v1/events" });
  const ended = once(stream.resume(), "end");
  await Promise.race([ended, sleep(patience(), undefined, { ref: false }).then(() => assert.fail("the stream continues"))]);
});

test("a WebSocket carries the key as its protocol, and is refused to other origins", async (t) => {
  const fixture = await start(t);
  const { cookie, key } = await loggedIn(fixture, { scope: "exec" });
  const address = `ws://127.0.0.1:${fixture.port}/v1/sandboxes/sb-x/processes/stream`;
  const own = `http://127.0.0.1:${fixture.port}`;
  const connect = async (protocol: string, origin: string): Promise<string> => {
    const socket = new WebSocket(address, protocol, { headers: { cookie, origin } });
    const outcome = await new Promise<string>((resolve) => {
      socket.once("open", () => resolve(`open ${socket.protocol}`));
      socket.once("unexpected-response", (_request, response) => resolve(String(response.statusCode)));
      socket.once("error", () => undefined);
    });
    socket.terminate();
    return outcome;
  };
  assert.equal(await connect(`forkd.ui.${key}`, own), `open forkd.ui.${key}`);
  assert.equal(await connect("forkd.ui.wrong", own), "403");
  assert.equal(await connect(`forkd.ui.${key}`, "http://8000-sb-x.localhost"), "403");
});
