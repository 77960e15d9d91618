// Access to servers in guests. The client's credentials are not forwarded.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { httpServer, serveGuests, type Proxied } from "./guest.ts";
import type { TestContext } from "node:test";
import type { Reply } from "../helpers/serve.ts";

type Told = Proxied & {
  /** port of the server that echoes its request */
  port: number;
  token: string;
  /** over TCP, with the host of `sb-a` or another one */
  visit: (path: string, headers?: Record<string, string>, opts?: { method?: string; host?: string }) => Promise<Reply>;
  link: (expiresInSecs?: number) => string;
};

async function serveTeller(t: TestContext, settings: Record<string, string> = {}): Promise<Told> {
  const port = await httpServer(t, (asked, response) => void response.end(`${asked.url}\n${asked.rawHeaders.join("\n")}`));
  const fixture = await serveGuests(t, { settings });
  const { token } = fixture.services.tokens.create({ name: "ci", scope: "exec", max_sandboxes: null });
  const visit: Told["visit"] = (path, headers = {}, opts = {}) =>
    fixture.ask(path, {
      tcp: true,
      headers: { host: opts.host ?? `${port}-sb-a.localhost:8889`, ...headers },
      ...(opts.method ? { method: opts.method } : {}),
    });
  const link: Told["link"] = (expiresInSecs = 60) =>
    fixture.services.previews.create({ sandbox: "sb-a", port, expiresInSecs, principal: "ci" }).token;
  return { ...fixture, port, token, visit, link };
}

const COOKIE = /^forkd_preview=(\S+); Path=\/; HttpOnly; SameSite=Lax; Max-Age=\d+$/;
const HTML = { accept: "text/html" };

test("by path, a token as Authorization is accepted and not forwarded", async (t) => {
  const { get, port, token } = await serveTeller(t);
  const reply = await get(port, "/", { tcp: true, token });
  assert.equal(reply.status, 200);
  assert.doesNotMatch(reply.text, /authorization|fkd_/i);
  assert.match(reply.text, /X-Forwarded-For\n127\.0\.0\.1/);
});

test("by path, a token as X-Forkd-Token leaves Authorization to the app", async (t) => {
  const { get, port, token } = await serveTeller(t);
  const reply = await get(port, "/", { tcp: true, headers: { "x-forkd-token": token, authorization: "Bearer of-the-app" } });
  assert.equal(reply.status, 200);
  assert.match(reply.text, /\nauthorization\nBearer of-the-app\n/i);
  assert.doesNotMatch(reply.text, /fkd_|x-forkd/i);
});

test("over the Unix socket Authorization is the app's, unless it has a token of forkd", async (t) => {
  const { get, port, token, services, dir } = await serveTeller(t);
  assert.match((await get(port, "/", { headers: { authorization: "Bearer of-the-app" } })).text, /Bearer of-the-app/);
  for (const authorization of [`Bearer ${token}`, `bearer  ${token}`, `Token ${token}`, "Bearer fkd_revoked-long-ago"])
    assert.doesNotMatch((await get(port, "/", { headers: { authorization } })).text, /authorization/i, authorization);
  await writeFile(`${dir}/token`, "a-token-without-our-prefix", { mode: 0o600 });
  await services.tokens.loadFile(`${dir}/token`);
  const reply = await get(port, "/", { headers: { authorization: "Bearer a-token-without-our-prefix" } });
  assert.doesNotMatch(reply.text, /authorization/i);
});

test("without a token, existing and missing sandboxes have the same answer", async (t) => {
  const { get, ask, port, visit, services } = await serveTeller(t);
  const { token: reader } = services.tokens.create({ name: "reader", scope: "read", max_sandboxes: null });
  assert.equal((await get(port, "/", { tcp: true })).status, 401);
  assert.equal((await ask("/v1/sandboxes/sb-x/proxy/80/", { tcp: true })).status, 401);
  assert.equal((await get(port, "/", { tcp: true, token: reader })).status, 403);
  assert.equal((await visit("/")).status, 401);
  assert.equal((await visit("/", {}, { host: "80-sb-x.localhost" })).status, 401);
  assert.equal((await visit("/", { "x-forkd-token": reader })).status, 403);
});

test("by host, a token is X-Forkd-Token; Authorization is the app's and opens nothing", async (t) => {
  const { visit, token } = await serveTeller(t);
  assert.equal((await visit("/", { authorization: `Bearer ${token}` })).status, 401);
  const reply = await visit("/", { "x-forkd-token": token, authorization: "Basic app" });
  assert.equal(reply.status, 200);
  assert.match(reply.text, /Basic app/);
  assert.doesNotMatch(reply.text, /fkd_|x-forkd/i);
  assert.equal((await visit("/", { "x-forkd-token": token }, { host: "80-sb-x.localhost" })).status, 404);
});

test("a link becomes a cookie, disappears from the address, and the cookie grants access", async (t) => {
  const { visit, link } = await serveTeller(t);
  const token = link();
  const entered = await visit(`/app?a=1&forkd_preview=${token}&b=2`, HTML);
  assert.deepEqual([entered.status, entered.headers.location, entered.text], [303, "/app?a=1&b=2", ""]);
  assert.deepEqual([entered.headers["cache-control"], entered.headers["referrer-policy"]], ["no-store", "no-referrer"]);
  const [cookie = ""] = entered.headers["set-cookie"] ?? [];
  assert.equal(COOKIE.exec(cookie)?.[1], token);
  const page = await visit("/app", { cookie: `own=1; ${cookie.split(";")[0]}` });
  assert.equal(page.status, 200);
  assert.match(page.text, /\ncookie\nown=1\n/i);
  assert.doesNotMatch(page.text, /fkp_/);
});

test("a link never redirects elsewhere", async (t) => {
  const { visit, link } = await serveTeller(t);
  for (const path of ["//evil.example/", "/\\evil.example/", "///evil.example"])
    assert.match(String((await visit(`${path}?forkd_preview=${link()}`)).headers.location), /^\/evil\.example/, path);
});

test("a program sends the token of a link as X-Forkd-Token, or in the address of anything but a page", async (t) => {
  const { visit, link } = await serveTeller(t);
  const byHeader = await visit("/x", { "x-forkd-token": link() });
  assert.equal(byHeader.status, 200);
  const posted = await visit(`/x?forkd_preview=${link()}&y`, {}, { method: "POST" });
  assert.equal(posted.status, 200);
  assert.match(posted.text, /^\/x\?y\n/);
  assert.doesNotMatch(byHeader.text + posted.text, /fkp_/);
});

test("a link opens one port of one sandbox, by any name of the sandbox", async (t) => {
  const { visit, link, port } = await serveTeller(t);
  const cookie = { cookie: `forkd_preview=${link()}` };
  assert.equal((await visit("/", cookie, { host: `${port}-web.localhost` })).status, 200);
  for (const host of [`${port}-sb-b.localhost`, `${port + 1}-sb-a.localhost`, `${port}-sb-x.localhost`])
    assert.equal((await visit("/", cookie, { host })).status, 401, host);
  assert.equal((await visit("/", {}, { host: `${port}-sb-b.localhost` })).status, 401);
});

test("a link is no token of the API, and not valid for paths", async (t) => {
  const { ask, get, link, port } = await serveTeller(t);
  const token = link();
  assert.equal((await ask("/v1/sandboxes", { tcp: true, token })).status, 401);
  assert.equal((await get(port, "/", { tcp: true, token })).status, 401);
  assert.equal((await get(port, `/?forkd_preview=${token}`, { tcp: true })).status, 401);
  assert.equal((await get(port, "/", { tcp: true, headers: { cookie: `forkd_preview=${token}` } })).status, 401);
});

test("expired and forged links have different errors, and lock no address out", async (t) => {
  const { visit, link, ask, token } = await serveTeller(t);
  const expired = link(-1);
  const page = await visit(`/?forkd_preview=${expired}`, HTML);
  assert.equal(page.status, 401);
  assert.match(String(page.headers["content-type"]), /^text\/html/);
  assert.match(page.text, /has expired/);
  assert.doesNotMatch(page.text, /fkp_/);
  assert.match((await visit("/", { cookie: `forkd_preview=${expired}` })).text, /has expired/);
  for (let i = 0; i < 20; i++) assert.match((await visit("/", { cookie: "forkd_preview=fkp_x.y" })).text, /expired or invalid/);
  assert.equal((await ask("/v1/config", { tcp: true, token })).status, 403);
});

test("wrong tokens are counted in every header", async (t) => {
  const { get, port, ask, token } = await serveTeller(t);
  for (let i = 0; i < 10; i++)
    assert.equal((await get(port, "/", { tcp: true, headers: { "x-forkd-token": `fkd_wrong-${i}` } })).status, 401);
  assert.equal((await ask("/v1/sandboxes", { tcp: true, token })).status, 429);
});

test("a cookie that another host has set beside forkd's has no effect", async (t) => {
  const { visit, link } = await serveTeller(t);
  assert.equal((await visit("/", { cookie: `forkd_preview=fkp_junk.x; forkd_preview=${link()}` })).status, 200);
});

test("pages of other origins cannot use the cookie, those of the same sandbox can", async (t) => {
  const { visit, link, port } = await serveTeller(t);
  const cookie = `forkd_preview=${link()}`;
  const host = `${port}-sb-a.localhost:8889`;
  for (const [headers, status] of [
    [{ origin: `http://${host}` }, 200],
    [{ origin: `http://3000-sb-a.localhost:8889` }, 200],
    [{ origin: `http://3000-web.localhost:8889` }, 200],
    [{ origin: `http://${port}-sb-b.localhost:8889` }, 403],
    [{ origin: "http://localhost:8889" }, 403],
    [{ origin: "https://evil.example" }, 403],
    [{ origin: "null" }, 403],
    [{ "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" }, 403],
    [{ "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors" }, 403],
    [{ "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" }, 200],
    [{ "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors" }, 200],
    [{ "sec-fetch-site": "none", "sec-fetch-mode": "navigate" }, 200],
  ] as [Record<string, string>, number][])
    assert.equal((await visit("/", { cookie, ...headers })).status, status, JSON.stringify(headers));
});

test("a link ends with the token that made it", async (t) => {
  const { visit, link, services } = await serveTeller(t);
  const cookie = { cookie: `forkd_preview=${link()}` };
  assert.equal((await visit("/", cookie)).status, 200);
  services.tokens.rotate("ci");
  assert.equal((await visit("/", cookie)).status, 401);
});

test("visitors are logged with the creator of the link, and never a token", async (t) => {
  const { visit, link, services, dir, logged } = await serveTeller(t);
  const token = link();
  await visit(`/secret?forkd_preview=${token}`);
  await visit("/", { cookie: `forkd_preview=${token}` });
  await visit("/?forkd_preview=fkp_forged.x");
  await services.audit?.flush();
  const audit = (await readFile(`${dir}/audit.log`, "utf8")).trim().split("\n");
  const entries = audit.map((line) => JSON.parse(line) as { principal: string | null; status: number; sandbox: string });
  assert.deepEqual(
    entries.map(({ principal, status, sandbox }) => [principal, status, sandbox]),
    [
      ["preview:ci", 303, "sb-a"],
      ["preview:ci", 200, "sb-a"],
      [null, 401, "sb-a"],
    ],
  );
  assert.doesNotMatch(audit.join("") + logged(), /fkp_|secret/);
});

test("links have an address that a browser can open", async (t) => {
  const { ask, services, port } = await serveTeller(t);
  const make = (body = {}): Promise<Reply> => ask(`/v1/sandboxes/web/ports/${port}/preview`, { body });
  const none = await make();
  assert.deepEqual([none.status, none.json()["code"]], [409, "NO_TCP"]);
  services.daemon.bind = "127.0.0.1:8889";
  const made = (await make({ expires_in_secs: 60 })).json() as { url: string; token: string; expires_at_unix: number };
  assert.equal(made.url, `http://${port}-sb-a.localhost:8889/?forkd_preview=${made.token}`);
  assert.equal(services.previews.verify(made.token)?.grant.sandbox, "sb-a");
  for (const expires of [0, 8 * 24 * 3600, 1.5]) assert.equal((await make({ expires_in_secs: expires })).status, 400);
});

test("without a domain no host belongs to a guest", async (t) => {
  const { visit, ask, port } = await serveTeller(t, { "proxy-domain": "none" });
  assert.equal((await visit("/healthz")).status, 200);
  assert.equal((await ask(`/v1/sandboxes/sb-a/ports/${port}/preview`, { body: {} })).json()["code"], "NO_TCP");
});

test("behind a TLS proxy the cookie is for TLS only", async (t) => {
  const { visit, link, port } = await serveTeller(t, { "proxy-domain": "https://preview.example.org" });
  const host = `${port}-sb-a.preview.example.org`;
  const [cookie = ""] = (await visit(`/?forkd_preview=${link()}`, {}, { host })).headers["set-cookie"] ?? [];
  assert.match(cookie, /^__Host-forkd_preview=.*; Secure$/);
  assert.equal((await visit("/", { cookie: cookie.split(";")[0] ?? "" }, { host })).status, 200);
});

test("CORS settings apply to the API, not to guests' servers", async (t) => {
  const APP = "https://app.example.org";
  const { get, visit, port, token, link } = await serveTeller(t, { "cors-origins": APP });
  const byPath = await get(port, "/", { tcp: true, token, headers: { origin: APP } });
  assert.equal(byPath.headers["access-control-allow-origin"], APP);
  const byHost = await visit("/", { "x-forkd-token": link(), origin: APP });
  assert.deepEqual([byHost.status, byHost.headers["access-control-allow-origin"]], [200, undefined]);
  const preflight = { origin: APP, "access-control-request-method": "PUT" };
  assert.equal((await get(port, "/", { tcp: true, method: "OPTIONS", headers: preflight })).status, 204);
});

test("wrong tokens at a guest's host lock an address out of that host only", async (t) => {
  const { visit, ask, get, services, token, port } = await serveTeller(t);
  for (let count = 0; count < 10; count++) assert.equal((await visit("/", { "x-forkd-token": `wrong-${count}-of-the-page` })).status, 401);
  assert.equal((await visit("/", { "x-forkd-token": token })).status, 429);
  assert.equal((await ask("/v1/sandboxes/sb-a", { tcp: true, token })).status, 200);
  assert.equal((await get(port, "/", { tcp: true, token })).status, 200);
  const elsewhere = { host: `${port}-sb-b.localhost`, "x-forkd-token": token };
  assert.equal((await ask("/", { tcp: true, headers: elsewhere })).status, 200);
  // guesses at a host without a sandbox count against the client's address
  for (let count = 0; count < 10; count++)
    await ask("/", { tcp: true, headers: { host: `80-sb-none${count}.localhost`, "x-forkd-token": `wrong-${count}` } });
  assert.ok(services.failures.blockedMs("127.0.0.1") > 0);
});
