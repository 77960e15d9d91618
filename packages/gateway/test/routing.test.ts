// Requests through a gateway to fake nodes: routing, identity, streams, refusals.

import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { FakeNode, snapshot, type Seen } from "./helpers/fake-node.ts";
import { ADMIN, serve, until } from "./helpers/gateway.ts";

const A = "sb-aaaa222222222222";
const B = "sb-bbbb333333333333";

test("a sandbox's requests go to the node in its id, with the principal and without the token", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const { ask } = await serve(t, [a, b]);
  for (const node of [a, b]) node.routes.set("POST /v1/sandboxes/*", ({ url, body }) => ({ body: { node: node.code, url, body } }));
  const created = await ask("/v1/tokens", { body: { name: "ann", scope: "exec", max_sandboxes: 7 } });
  assert.equal(created.status, 201);
  const { token } = created.body as { token: string };
  for (const [id, node] of [
    [A, a],
    [B, b],
  ] as const) {
    const reply = await ask(`/v1/sandboxes/${id}/eval?x=1`, {
      token,
      body: { code: "1" },
      headers: { "x-forkd-identity": "forged", connection: "x-hop", "x-hop": "1" },
    });
    assert.deepEqual(reply.body, { node: node.code, url: `/v1/sandboxes/${id}/eval?x=1`, body: '{"code":"1"}' });
    const seen = node.seen.at(-1) as Seen;
    const { name, scope, max_sandboxes, remote } = seen.claim;
    assert.deepEqual({ name, scope, max_sandboxes, remote }, { name: "ann", scope: "exec", max_sandboxes: 7, remote: "127.0.0.1" });
    assert.equal(seen.headers["authorization"], undefined);
    assert.equal(seen.headers["x-hop"], undefined);
    assert.ok(!seen.rawHeaders.some((text) => text.includes(token)), "the token stays at the gateway");
    assert.equal(reply.headers["x-request-id"], seen.headers["x-request-id"]);
  }
});

test("scopes and tokens are checked by the gateway", async (t) => {
  const node = await FakeNode.start(t, "aaaa");
  const { ask } = await serve(t, [node]);
  const make = async (scope: string): Promise<string> =>
    ((await ask("/v1/tokens", { body: { name: scope, scope } })).body as { token: string }).token;
  const [read, exec] = [await make("read"), await make("exec")];
  const codes = async (token: string | null, path: string, body?: object): Promise<number> =>
    (await ask(path, { token, ...(body ? { body } : {}) })).status;
  assert.equal(await codes(null, `/v1/sandboxes/${A}`), 401);
  assert.equal(await codes("fkd_wrong", `/v1/sandboxes/${A}`), 401);
  assert.equal(await codes(read, `/v1/sandboxes/${A}/eval`, { code: "1" }), 403);
  assert.equal(await codes(exec, "/v1/tokens"), 403);
  assert.equal(await codes(exec, "/v1/config"), 403);
  assert.equal(await codes(null, "/healthz"), 200);
  assert.equal(await codes(ADMIN, "/v1/nothing"), 404);
  assert.equal((await ask("/v1/status", { method: "PUT" })).status, 405);
  assert.deepEqual(node.seen, [], "no refused request reached the node");
});

test("a revoked token is refused at once, on every gateway, and ends its streams", async (t) => {
  const node = await FakeNode.start(t, "aaaa");
  const one = await serve(t, [node]);
  const two = await serve(t, [node], { dir: one.dir });
  node.routes.set(`GET /v1/sandboxes/${A}`, () => ({ body: {} }));
  node.routes.set(
    `GET /v1/sandboxes/${A}/logs`,
    (_seen, response) => void response.writeHead(200, { "content-type": "text/plain" }).write("a line\n"),
  );
  const { token } = (await one.ask("/v1/tokens", { body: { name: "ann", scope: "exec" } })).body as { token: string };
  await until(async () => (await two.ask(`/v1/sandboxes/${A}`, { token })).status === 200);
  const stream = await two.open(`/v1/sandboxes/${A}/logs?follow=true`, { token });
  const ended = new Promise<void>((resolve) => {
    stream.on("data", () => undefined);
    stream.once("close", resolve);
    stream.once("error", () => resolve());
  });
  assert.equal((await one.ask("/v1/tokens/ann", { method: "DELETE" })).status, 204);
  assert.equal((await one.ask(`/v1/sandboxes/${A}`, { token })).status, 401);
  await ended;
  await until(async () => (await two.ask(`/v1/sandboxes/${A}`, { token })).status === 401);
  // nodes get it, to end access tokens and preview links
  await until(() => node.revoked.has("ann"));
});

test("bodies are streamed in both directions, and an upgraded connection is piped", async (t) => {
  const node = await FakeNode.start(t, "aaaa");
  const { port } = await serve(t, [node]);
  node.onUpgrade((request, socket) => {
    assert.equal(request.headers["authorization"], undefined);
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${request.headers.upgrade}\r\n\r\n`);
    socket.pipe(socket);
  });
  const socket = connect(port, "127.0.0.1");
  t.after(() => socket.destroy());
  let text = "";
  socket.setEncoding("utf8").on("data", (piece: string) => (text += piece));
  socket.write(
    `GET /v1/sandboxes/${A}/ports/80/connect HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${ADMIN}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n`,
  );
  await until(() => text.includes("101 Switching"));
  socket.write("ping through the gateway");
  await until(() => text.endsWith("ping through the gateway"));
  socket.destroy();
});

test("an ambiguous length is refused and never reaches a node", async (t) => {
  const node = await FakeNode.start(t, "aaaa");
  const { port } = await serve(t, [node]);
  const attempts = [
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/tokens HTTP/1.1\r\n\r\n",
    "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhelloG",
    "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
  ];
  for (const rest of attempts) {
    const socket = connect(port, "127.0.0.1");
    let text = "";
    socket
      .setEncoding("utf8")
      .on("data", (piece: string) => (text += piece))
      .on("error", () => undefined);
    socket.write(
      `POST /v1/sandboxes/${A}/eval HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${ADMIN}\r\nContent-Type: application/json\r\n${rest}`,
    );
    await until(() => socket.destroyed || text.includes("\r\n\r\n"));
    assert.match(text, /^HTTP\/1.1 4\d\d/, rest);
    socket.destroy();
  }
  assert.deepEqual(
    node.seen.filter(({ url }) => !url.includes(A)),
    [],
  );
  assert.ok(node.seen.every(({ body }) => body === ""));
});

test("a node that is gone is a code that names it, and the others continue", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const { ask } = await serve(t, [a, b]);
  b.routes.set(`GET /v1/sandboxes/${B}`, () => ({ body: { id: B } }));
  await a.close();
  const gone = await ask(`/v1/sandboxes/${A}`);
  assert.equal(gone.status, 503);
  assert.equal((gone.body as { code: string }).code, "NODE_UNREACHABLE");
  assert.match((gone.body as { error: string }).error, /aaaa/);
  assert.equal((await ask(`/v1/sandboxes/${B}`)).status, 200);
  b.routes.set("GET /v1/sandboxes", () => ({ body: [] }));
  await until(async () => (await ask("/v1/sandboxes")).headers["x-forkd-unreachable"] === "aaaa");
  await a.listen();
  a.routes.set(`GET /v1/sandboxes/${A}`, () => ({ body: { id: A } }));
  await until(async () => (await ask(`/v1/sandboxes/${A}`)).status === 200);
});

test("names are looked for on all nodes; one that two nodes have is refused with both ids", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const { ask } = await serve(t, [a, b]);
  b.routes.set("GET /v1/sandboxes/web", () => ({ body: { id: B } }));
  b.routes.set("POST /v1/sandboxes/web/eval", () => ({ body: { at: "b" } }));
  assert.deepEqual((await ask("/v1/sandboxes/web/eval", { body: { code: "1" } })).body, { at: "b" });
  for (const node of [a, b]) node.routes.set("GET /v1/sandboxes/twin", () => ({ body: { id: node === a ? A : B } }));
  const twin = await ask("/v1/sandboxes/twin");
  assert.equal(twin.status, 409);
  assert.deepEqual((twin.body as { code: string; details: unknown }).details, { ids: [A, B] });
  assert.equal((await ask("/v1/sandboxes/none")).status, 404);
});

test("lists are merged in order and page by page, without copies", async (t) => {
  const nodes = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb"), await FakeNode.start(t, "cccc")];
  const { ask } = await serve(t, nodes);
  const all = Array.from({ length: 30 }, (_, at) => ({
    id: `sb-${nodes[at % 3]?.code}${String(at).padStart(12, "2")}`,
    created_at_unix_ms: at,
  }));
  const keyOf = (item: { id: string; created_at_unix_ms: number }): string =>
    `${String(item.created_at_unix_ms).padStart(15, "0")} ${item.id}`;
  for (const node of nodes)
    node.routes.set("GET /v1/sandboxes", ({ url }) => {
      const query = new URL(url, "http://x").searchParams;
      const after = Buffer.from(query.get("cursor") ?? "", "base64url").toString();
      const own = all.filter((item) => item.id.startsWith(`sb-${node.code}`) && keyOf(item) > after);
      const page = own.slice(0, Number(query.get("limit") ?? 1000));
      const last = page.at(-1);
      return {
        body: page,
        headers: page.length < own.length && last ? { "x-next-cursor": Buffer.from(keyOf(last)).toString("base64url") } : {},
      };
    });
  assert.deepEqual((await ask("/v1/sandboxes")).body, all);
  const pages: unknown[] = [];
  for (let cursor = ""; ;) {
    const { body, headers } = await ask(`/v1/sandboxes?limit=7${cursor === "" ? "" : `&cursor=${cursor}`}`);
    pages.push(...(body as unknown[]));
    if (typeof headers["x-next-cursor"] !== "string") break;
    cursor = headers["x-next-cursor"];
  }
  assert.deepEqual(pages, all);
  for (const node of nodes) node.snapshots = [snapshot("app", "sn-aaaa222222222222")];
  assert.equal(((await ask("/v1/snapshots")).body as unknown[]).length, 1);
  const status = (await ask("/v1/status")).body as { limits: { max_sandboxes: number } };
  for (const node of nodes) node.routes.set("GET /v1/status", () => ({ body: node.status() }));
  assert.equal(((await ask("/v1/status")).body as typeof status).limits.max_sandboxes, 300);
});

test("events of all nodes are one stream that continues where it was, through another gateway", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const one = await serve(t, [a, b]);
  const two = await serve(t, [a, b], { dir: one.dir });
  const asked: string[] = [];
  for (const node of [a, b])
    node.routes.set("GET /v1/events", ({ headers }, response) => {
      asked.push(`${node.code} ${String(headers["last-event-id"])}`);
      node.openEvents(response, headers["last-event-id"] === undefined ? node.lastEventId : Number(headers["last-event-id"]));
      return undefined;
    });
  a.lastEventId = 10;
  const first = await one.open("/v1/events");
  let text = "";
  first.setEncoding("utf8").on("data", (piece: string) => (text += piece));
  await until(() => text.includes("id: "));
  a.emit("sandbox.created", { sandbox: A });
  b.emit("sandbox.created", { sandbox: B });
  await until(() => text.includes(A) && text.includes(B));
  first.destroy();
  const cursor = [...text.matchAll(/^id: (.*)$/gm)].at(-1)?.[1] ?? "";
  assert.deepEqual(cursor.split(",").toSorted(), ["aaaa:11", "bbbb:1"]);
  asked.length = 0;
  const second = await two.open("/v1/events", { headers: { "last-event-id": cursor } });
  await until(() => asked.length === 2);
  assert.deepEqual(asked.toSorted(), ["aaaa 11", "bbbb 1"]);
  second.destroy();
  assert.equal((await two.ask("/v1/events?since=7")).status, 400);
});

test("E2B: keys of the control API are the cluster's, access tokens are the node's, both by the id alone", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const { ask } = await serve(t, [a, b]);
  const theirs = B.replace("-", "");
  b.routes.set(`GET /sandboxes/${theirs}`, ({ claim }) => ({ body: { by: claim.name } }));
  assert.deepEqual((await ask(`/sandboxes/${theirs}`, { token: null, headers: { "x-api-key": ADMIN } })).body, {
    by: "token-file",
  } as never);
  assert.equal((await ask(`/sandboxes/${theirs}`, { token: null, headers: { "x-api-key": "wrong" } })).status, 401);
  b.routes.set("GET /files", ({ headers, claim }) => ({
    body: { token: headers["x-access-token"], name: claim.name, host: headers.host },
  }));
  const host = `49983-${theirs}.localhost`;
  const inside = await ask("/files?path=/x", { token: null, headers: { host, "x-access-token": "secret" } });
  assert.deepEqual(inside.body, { token: "secret", name: null, host } as never);
  b.routes.set("GET /page", ({ url, headers }) => ({ body: { url, cookie: headers.cookie } }));
  const page = await ask("/page?forkd_preview=fkp_abc", {
    token: null,
    headers: { host: `3000-${B}.localhost`, cookie: `forkd_preview=fkp_x; other=${ADMIN}` },
  });
  assert.deepEqual(page.body, { url: "/page?forkd_preview=fkp_abc" } as never, "a cookie with a token of the cluster is removed");
});
