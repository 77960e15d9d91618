// The dashboard of a cluster on fake nodes: logins that all gateways share, what the cookie allows, and when it ends.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readdir, readFile, rename } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { FakeNode } from "./helpers/fake-node.ts";
import { ADMIN, serve, until, type Fixture, type Reply } from "./helpers/gateway.ts";

type Link = { url: string; project: string; scope: string };
type LoggedIn = { cookie: string; key: string; headers: Record<string, string> };

const SANDBOX = "/v1/sandboxes/sb-aaaa222222222222";

/** Two gateways with one state, before one node that answers with what it got */
async function twoGateways(t: TestContext): Promise<{ one: Fixture; two: Fixture; node: FakeNode }> {
  const node = await FakeNode.start(t, "aaaa");
  node.routes.set("GET /v1/sandboxes*", ({ claim, headers }) => ({ body: { ...claim, headers } }));
  const one = await serve(t, [node]);
  return { one, two: await serve(t, [node], { dir: one.dir }), node };
}

async function link(fixture: Fixture, body: object = {}, token = ADMIN, headers: Record<string, string> = {}): Promise<string> {
  const made = await fixture.ask("/v1/ui/links", { body, token, headers });
  assert.equal(made.status, 201, made.text);
  return (made.body as Link).url.split("#login=")[1] ?? "";
}

async function open(fixture: Fixture, code: string, headers: Record<string, string> = {}): Promise<Reply> {
  return fixture.ask("/ui/session", { token: null, body: { code }, headers });
}

async function logIn(fixture: Fixture, code: string): Promise<LoggedIn> {
  const { status, headers, body, text } = await open(fixture, code);
  assert.equal(status, 201, text);
  const [cookie = ""] = headers["set-cookie"]?.[0]?.split(";") ?? [];
  const { key } = body as { key: string };
  return { cookie, key, headers: { cookie, "x-forkd-ui": key } };
}

async function statusOf(fixture: Fixture, path: string, headers: Record<string, string>, method = "GET"): Promise<number> {
  return (await fixture.ask(path, { token: null, headers, method })).status;
}

/** Status of a request to upgrade the connection; 101: the gateway passed it on */
async function upgrade({ port }: Fixture, headers: Record<string, string>): Promise<number> {
  const asked = {
    connection: "upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
  };
  const outgoing = httpRequest({ host: "127.0.0.1", port, path: `${SANDBOX}/processes/stream`, headers: { ...asked, ...headers } });
  outgoing.end();
  const status = await new Promise<number>((resolve, reject) => {
    outgoing.once("response", (response) => resolve(response.statusCode ?? 0));
    outgoing.once("upgrade", (response) => resolve(response.statusCode ?? 0));
    outgoing.once("error", reject);
  });
  outgoing.destroy();
  return status;
}

test("a gateway serves the page with the policy of a daemon, and never on the host of a guest's server", async (t) => {
  const { one, node } = await twoGateways(t);
  const { status, text, headers } = await one.ask("/ui/nodes", { token: null });
  assert.equal(status, 200);
  assert.match(text, /<title>forkd<\/title>/);
  const policy = String(headers["content-security-policy"]);
  for (const part of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "connect-src 'self'"])
    assert.ok(policy.includes(part));
  node.routes.set("GET /ui/nodes", () => ({ body: "the guest's" }));
  const onGuest = await one.ask("/ui/nodes", { token: null, headers: { host: `8000-sb-aaaa222222222222.localhost:${one.port}` } });
  assert.equal(onGuest.text, '"the guest\'s"');
  assert.equal(await statusOf(one, "/ui/nodes", { host: "rebound.test" }), 403);
});

test("a link of one gateway logs in through another, once; the cookie is valid at both", async (t) => {
  const { one, two } = await twoGateways(t);
  const code = await link(one, { scope: "exec", session_secs: 600 });
  const first = await open(two, code);
  assert.equal(first.status, 201);
  const cookie = first.headers["set-cookie"]?.[0] ?? "";
  assert.match(cookie, /^forkd_ui_[0-9a-f]{16}=fku_[0-9a-f]{64}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=(600|599)$/);
  const { key, ...info } = first.body as { key: string; principal: string; project: string; scope: string; is_cluster: boolean };
  assert.deepEqual([info.principal, info.project, info.scope, info.is_cluster], ["token-file", "default", "exec", true]);
  for (const gateway of [one, two]) assert.equal((await open(gateway, code)).status, 401);
  const headers = { cookie: cookie.split(";")[0] ?? "", "x-forkd-ui": key };
  await until(async () => (await statusOf(one, "/ui/session", headers)) === 200);
  assert.equal(await statusOf(two, "/ui/session", headers), 200);
  assert.equal(await statusOf(one, "/v1/tokens", headers), 403, "no more than the scope of the link");
  assert.equal(await statusOf(one, "/v1/ui/links", headers, "POST"), 403, "a session does not extend itself");
});

test("of two gateways that open one link at once, one logs in", async (t) => {
  const { one, two } = await twoGateways(t);
  for (let round = 0; round < 3; round++) {
    const code = await link(one);
    const replies = await Promise.all([open(one, code), open(two, code)]);
    assert.deepEqual(replies.map(({ status }) => String(status)).toSorted(), ["201", "401"]);
  }
});

test("a node gets the principal and neither the cookie nor the key of the page", async (t) => {
  const { one } = await twoGateways(t);
  const { headers } = await logIn(one, await link(one, { scope: "exec" }));
  const { body } = await one.ask(SANDBOX, { token: null, headers: { ...headers, cookie: `other=1; ${headers["cookie"]}` } });
  const seen = body as { name: string; scope: string; headers: Record<string, string> };
  assert.deepEqual(
    [seen.name, seen.scope, seen.headers["cookie"], seen.headers["x-forkd-ui"]],
    ["token-file", "exec", "other=1", undefined],
  );
});

test("the cookie needs the page's key and origin, in requests and WebSockets, and is nothing to a guest", async (t) => {
  const { one, node } = await twoGateways(t);
  node.onUpgrade(
    (_request, socket) => void socket.end("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
  );
  const { headers, cookie, key } = await logIn(one, await link(one));
  const host = `127.0.0.1:${one.port}`;
  assert.equal(await statusOf(one, SANDBOX, { ...headers, origin: `http://${host}` }), 200);
  for (const wrong of [
    { cookie },
    { cookie, "x-forkd-ui": "1" },
    { ...headers, origin: `http://8000-sb-x.${host}` },
    { ...headers, origin: "null" },
  ])
    assert.equal(await statusOf(one, SANDBOX, wrong), 403);
  assert.equal(await statusOf(one, SANDBOX, { "x-forkd-ui": key }), 401);
  assert.equal(await upgrade(one, { cookie, "sec-websocket-protocol": `forkd.ui.${key}`, origin: `http://${host}` }), 101);
  assert.equal(await upgrade(one, { cookie, "sec-websocket-protocol": "forkd.ui.wrong", origin: `http://${host}` }), 403);
  assert.equal(await upgrade(one, { cookie, "sec-websocket-protocol": `forkd.ui.${key}`, origin: "http://evil.test" }), 403);
  node.routes.set("GET /v1/sandboxes/sb-aaaa222222222222/proxy*", ({ claim, headers: given }) => ({
    body: [claim.name, given["cookie"] ?? null],
  }));
  const guest = await one.ask(`${SANDBOX}/proxy/8000/`, { token: null, headers: { ...headers, cookie: `own=2;${cookie}` } });
  assert.deepEqual(guest.body, [null, "own=2"], "a page of a guest has the dashboard's origin: the cookie gives it no rights");
});

test("logging out at one gateway ends the session and its streams at the others", async (t) => {
  const { one, two } = await twoGateways(t);
  const { headers } = await logIn(one, await link(one));
  await until(async () => (await statusOf(two, "/ui/session", headers)) === 200);
  const stream = await two.open("/v1/events", { token: null, headers });
  await once(stream, "data");
  const ended = once(stream.resume(), "close");
  assert.equal(await statusOf(one, "/ui/session", headers, "DELETE"), 204);
  await ended;
  await until(async () => (await statusOf(two, SANDBOX, headers)) === 401);
});

test("all browsers of one project are logged out, those of others stay", async (t) => {
  const { one, two } = await twoGateways(t);
  assert.equal((await one.ask("/v1/projects", { body: { name: "acme" } })).status, 201);
  const { body } = await one.ask("/v1/tokens", { body: { name: "ci", scope: "admin", project: "acme" } });
  const { token } = body as { token: string };
  const ours = await logIn(one, await link(one));
  const code = await link(one, {}, token);
  const theirs = await logIn(one, await link(one, {}, token));
  const info = (await one.ask("/ui/session", { token: null, headers: theirs.headers })).body as { principal: string; project: string };
  assert.deepEqual([info.principal, info.project], ["acme/ci", "acme"]);
  await until(async () => (await statusOf(two, "/ui/session", theirs.headers)) === 200);
  assert.equal((await two.ask("/v1/ui/sessions", { token, method: "DELETE" })).status, 204);
  await until(async () => (await statusOf(one, SANDBOX, theirs.headers)) === 401);
  assert.equal((await open(two, code)).status, 401);
  assert.equal(await statusOf(one, SANDBOX, ours.headers), 200);
});

test("a session ends with the token that it was made with", async (t) => {
  const { one, two } = await twoGateways(t);
  const make = async (name: string, more: object = {}): Promise<string> =>
    ((await one.ask("/v1/tokens", { body: { name, scope: "admin", ...more } })).body as { token: string }).token;
  const revoked = await logIn(one, await link(one, {}, await make("revoked")));
  const rotated = await logIn(one, await link(one, {}, await make("rotated")));
  const brief = await open(one, await link(one, {}, await make("brief", { expires_in_secs: 60 })));
  assert.ok((brief.body as { expires_at_unix: number }).expires_at_unix <= Date.now() / 1000 + 60, "not later than its token");
  const stream = await one.open("/v1/events", { token: null, headers: revoked.headers });
  await once(stream, "data");
  const ended = once(stream.resume(), "close");
  assert.equal((await two.ask("/v1/tokens/revoked", { method: "DELETE" })).status, 204);
  await ended;
  assert.equal((await two.ask("/v1/tokens/rotated/rotate", { body: {} })).status, 200);
  for (const { headers } of [revoked, rotated]) await until(async () => (await statusOf(one, SANDBOX, headers)) === 401);
});

test("the state has hashes only, and no more logins of one token than a daemon allows", async (t) => {
  const { one } = await twoGateways(t);
  const codes: string[] = [];
  for (let i = 0; i < 18; i++) codes.push(await link(one));
  assert.equal((await open(one, codes[0] ?? "")).status, 401, "the oldest link made room");
  const { cookie } = await logIn(one, codes.at(-1) ?? "");
  const folder = join(one.dir, "state", "logins");
  const files = await Promise.all((await readdir(folder)).map(async (name) => `${name} ${await readFile(join(folder, name), "utf8")}`));
  const all = files.join("\n");
  assert.ok(!all.includes("fku_"));
  assert.ok(
    all.includes(
      createHash("sha256")
        .update(cookie.split("=")[1] ?? "")
        .digest("hex"),
    ),
  );
});

test("while the state cannot be written, browsers cannot log in and sessions stay valid", async (t) => {
  const { one } = await twoGateways(t);
  const { headers } = await logIn(one, await link(one));
  await rename(join(one.dir, "state"), join(one.dir, "away"));
  const { status, body } = await one.ask("/v1/ui/links", { body: {} });
  assert.deepEqual([status, (body as { code: string }).code], [503, "CLUSTER_STATE_UNAVAILABLE"]);
  assert.equal(await statusOf(one, SANDBOX, headers), 200);
});

test("wrong links block the address, as wrong tokens do", async (t) => {
  const { one } = await twoGateways(t);
  const code = await link(one);
  const wrong = await Promise.all(Array.from({ length: 10 }, async () => open(one, "fku_wrong")));
  assert.ok(wrong.every(({ status }) => status === 401));
  assert.equal((await open(one, code)).status, 429);
});
