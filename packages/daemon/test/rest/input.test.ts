// Invalid requests and their errors.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkName } from "@forkd/runtime/util/name";
import { fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import { serve } from "../helpers/serve.ts";
import type { Ask } from "../helpers/serve.ts";

type Case = { what: string; path: string; ask?: Ask; status: number; code: string; error?: RegExp };

const post = (body: Ask["body"]): Ask => ({ method: "POST", body: body ?? "" });

const CASES: Case[] = [
  { what: "unknown path", path: "/v2/x", status: 404, code: "NOT_FOUND" },
  {
    what: "unknown path with a body of another type",
    path: "/x",
    ask: { method: "POST", body: Buffer.from("x"), headers: { "content-type": "text/plain" } },
    status: 404,
    code: "NOT_FOUND",
  },
  {
    what: "unknown field",
    path: "/v1/sandboxes",
    ask: post({ snapshot_tag: "a", bogus: 1 }),
    status: 400,
    code: "BAD_REQUEST",
    error: /bogus/,
  },
  { what: "missing field", path: "/v1/sandboxes", ask: post({}), status: 400, code: "BAD_REQUEST", error: /snapshot_tag: is required/ },
  {
    what: "no body where one is needed",
    path: "/v1/sandboxes",
    ask: { method: "POST" },
    status: 400,
    code: "BAD_REQUEST",
    error: /snapshot_tag: is required/,
  },
  {
    what: "number out of range",
    path: "/v1/sandboxes",
    ask: post({ snapshot_tag: "a", n: 0 }),
    status: 400,
    code: "BAD_REQUEST",
    error: /n: .*1/,
  },
  {
    what: "wrong type",
    path: "/v1/sandboxes",
    ask: post({ snapshot_tag: "a", n: "3" }),
    status: 400,
    code: "BAD_REQUEST",
    error: /n: expected/,
  },
  {
    what: "bad name in the body",
    path: "/v1/sandboxes",
    ask: post({ snapshot_tag: "../etc" }),
    status: 400,
    code: "BAD_NAME",
    error: /snapshot_tag/,
  },
  { what: "name that ends with .tmp", path: "/v1/snapshots", ask: post({ tag: "a.tmp" }), status: 400, code: "BAD_NAME", error: /tag/ },
  { what: "bad name in the path", path: "/v1/sandboxes/%2e%2e%2fetc", status: 400, code: "BAD_NAME", error: /id/ },
  { what: "very long name in the path", path: `/v1/sandboxes/${"a".repeat(300)}`, status: 400, code: "BAD_NAME" },
  { what: "a body that is a list", path: "/v1/sandboxes", ask: post([]), status: 400, code: "BAD_REQUEST" },
  { what: "a body that is null in JSON", path: "/v1/sandboxes", ask: post("null"), status: 400, code: "BAD_REQUEST" },
  { what: "malformed JSON", path: "/v1/sandboxes", ask: post('{"snapshot_tag": '), status: 400, code: "BAD_REQUEST", error: /JSON/ },
  {
    what: "bytes that are not UTF-8",
    path: "/v1/sandboxes",
    ask: { method: "POST", body: Buffer.from([0x22, 0xff, 0x22]), headers: { "content-type": "application/json" } },
    status: 400,
    code: "BAD_REQUEST",
  },
  {
    what: "__proto__ in an object of free keys",
    path: "/v1/sandboxes",
    ask: post('{"snapshot_tag":"a","metadata":{"__proto__":{"x":1}}}'),
    status: 400,
    code: "BAD_REQUEST",
  },
  {
    what: "__proto__ at the top, escaped",
    path: "/v1/sandboxes",
    ask: post('{"snapshot_tag":"a","\\u005f_proto__":{"n":3}}'),
    status: 400,
    code: "BAD_REQUEST",
  },
  {
    what: "form data",
    path: "/v1/sandboxes",
    ask: { method: "POST", body: Buffer.from("a=1"), headers: { "content-type": "application/x-www-form-urlencoded" } },
    status: 415,
    code: "UNSUPPORTED_MEDIA_TYPE",
  },
  {
    what: "a body of no type",
    path: "/v1/sandboxes",
    ask: { method: "POST", body: Buffer.from("{}") },
    status: 415,
    code: "UNSUPPORTED_MEDIA_TYPE",
  },
  {
    what: "repeated query parameter",
    path: "/v1/sandboxes?tag=a&tag=b",
    status: 400,
    code: "BAD_REQUEST",
    error: /tag: must be given once/,
  },
  { what: "unknown query parameter", path: "/v1/sandboxes?bogus=1", status: 400, code: "BAD_REQUEST", error: /bogus/ },
  { what: "query on a route that takes none", path: "/v1/tree?x=1", status: 400, code: "BAD_REQUEST", error: /"x"/ },
  { what: "bad value in the query", path: "/v1/sandboxes?limit=many", status: 400, code: "BAD_REQUEST", error: /limit/ },
  {
    what: "body on a route that takes none",
    path: "/v1/sandboxes/a/ping",
    ask: post({ x: 1 }),
    status: 400,
    code: "BAD_REQUEST",
    error: /"x"/,
  },
  { what: "malformed escape in the path", path: "/v1/sandboxes/%zz", status: 400, code: "BAD_REQUEST" },
  {
    what: "end of all sandboxes without saying so",
    path: "/v1/sandboxes",
    ask: { method: "DELETE" },
    status: 400,
    code: "BAD_REQUEST",
    error: /all=true/,
  },
  {
    what: "a relative path in the guest",
    path: "/v1/sandboxes/a/files?path=etc",
    status: 400,
    code: "BAD_REQUEST",
    error: /path: must be absolute/,
  },
  {
    what: "both branches of a choice missed",
    path: "/v1/images",
    ask: post({ name: "x", packages: ["A B"] }),
    status: 400,
    code: "BAD_REQUEST",
    error: /packages/,
  },
  {
    what: "bad idempotency key",
    path: "/v1/sandboxes",
    ask: { ...post({ snapshot_tag: "a" }), headers: { "idempotency-key": "x".repeat(129) } },
    status: 400,
    code: "BAD_REQUEST",
  },
  { what: "bad Last-Event-ID", path: "/v1/events", ask: { headers: { "last-event-id": "x" } }, status: 400, code: "BAD_REQUEST" },
];

test("bad requests are refused with the field and the rule", async (t) => {
  const fixture = await serve(t);
  for (const { what, path, ask, status, code, error } of CASES) {
    const reply = await fixture.ask(path, ask);
    assert.equal(reply.status, status, `${what}: ${reply.text}`);
    const problem = reply.json();
    assert.equal(problem["code"], code, what);
    assert.deepEqual(
      Object.keys(problem)
        .filter((key) => key !== "details")
        .sort(),
      ["code", "error", "hint", "request_id"],
      what,
    );
    assert.equal(problem["request_id"], reply.headers["x-request-id"], what);
    if (error) assert.match(String(problem["error"]), error, what);
  }
  assert.equal(({} as { x?: number }).x, undefined, "nothing was polluted");
});

test("refusals do not repeat values", async (t) => {
  const fixture = await serve(t);
  const reply = await fixture.ask("/v1/images", { body: { reference: "a/b", password: 5, username: "hunter2-name", token: "hunter2" } });
  assert.equal(reply.status, 400);
  assert.doesNotMatch(reply.text, /hunter2/);
});

test("an unsupported method gets the supported ones", async (t) => {
  const fixture = await serve(t);
  for (const [method, path, allow] of [
    ["PUT", "/v1/sandboxes", "GET, HEAD, POST, DELETE"],
    ["POST", "/healthz", "GET, HEAD"],
    ["OPTIONS", "/v1/sandboxes/a/exec", "POST"],
    ["GET", "/v1/tokens/x/", "DELETE"],
  ] as const) {
    const reply = await fixture.ask(path, { method });
    assert.equal(reply.status, 405, path);
    assert.equal(reply.json()["code"], "METHOD_NOT_ALLOWED");
    assert.equal(reply.headers["allow"], allow);
  }
});

test("a body beyond the limit is refused, whether or not its length is announced", async (t) => {
  const fixture = await serve(t, { limits: { bodyBytes: 1000 } });
  const body = JSON.stringify({ code: "x".repeat(2000) });
  for (const headers of [{ "content-length": String(body.length) }, { "transfer-encoding": "chunked" }]) {
    const reply = await fixture.ask("/v1/sandboxes/a/eval", { method: "POST", body, headers });
    assert.equal(reply.status, 413);
    assert.equal(reply.json()["code"], "TOO_LARGE");
  }
});

test("the default limit is exactly 16 MiB", async (t) => {
  const fixture = await serve(t);
  const reply = await fixture.ask("/v1/sandboxes/a/eval", { body: { code: "x".repeat(16 * 1024 * 1024) } });
  assert.equal(reply.status, 413);
  const under = await fixture.ask("/v1/sandboxes/a/eval", { body: { code: "x".repeat(8 * 1024 * 1024) } });
  assert.equal(under.json()["code"], "NOT_FOUND");
});

test("headers beyond the limit are refused", async (t) => {
  const fixture = await serve(t);
  const reply = await fixture.ask("/healthz", { headers: { "x-long": "x".repeat(20_000) } });
  assert.equal(reply.status, 413);
  assert.equal(reply.json()["code"], "TOO_LARGE");
});

test("a missing body is an empty object where that is valid", async (t) => {
  const seen: unknown[] = [];
  const manager = fakeManager({
    branches: {
      branch: async (_id, request) => {
        seen.push(request);
        return { info: { tag: "x" } as never, waited: request.wait };
      },
    },
  });
  const fixture = await serve(t, { manager });
  assert.equal((await fixture.ask("/v1/sandboxes/a/branch", { method: "POST" })).status, 201);
  const typed = { method: "POST", headers: { "content-type": "application/json" } };
  assert.equal((await fixture.ask("/v1/sandboxes/a/branch", typed)).status, 201);
  assert.equal((await fixture.ask("/v1/sandboxes/a/branch", { body: { wait: false } })).status, 202);
  assert.deepEqual(seen, [{ wait: true }, { wait: true }, { wait: false }]);
});

test("an empty object is accepted as no body", async (t) => {
  const manager = fakeManager({ execution: { ping: async () => ({ pong: true, ms: 1, kernels: [] }) } });
  const fixture = await serve(t, { manager });
  assert.equal((await fixture.ask("/v1/sandboxes/a/ping", { body: {} })).status, 200);
});

test("metadata may be repeated in the query", async (t) => {
  const seen: unknown[] = [];
  const manager = fakeManager({
    sandboxes: {
      list: (query) => {
        seen.push(query.metadata);
        return { items: [sandboxInfo("a")], nextCursor: "next" };
      },
    },
  });
  const fixture = await serve(t, { manager });
  const reply = await fixture.ask("/v1/sandboxes?metadata=a=1&metadata=b=2&limit=1");
  assert.deepEqual(seen, [["a=1", "b=2"]]);
  assert.equal(reply.headers["x-next-cursor"], "next");
});

test("a request id of the client is used if it is valid", async (t) => {
  const fixture = await serve(t);
  for (const [given, taken] of [
    ["abc.DEF_1-2", true],
    ["a b", false],
    ["x".repeat(65), false],
  ] as const) {
    const reply = await fixture.ask("/healthz", { headers: { "x-request-id": given } });
    assert.equal(reply.headers["x-request-id"] === given, taken, given);
    assert.ok(reply.headers["x-request-id"]);
  }
});

test("HEAD answers like GET, without the body", async (t) => {
  const manager = fakeManager({ sandboxes: { get: sandboxInfo }, files: { read: async () => endless() } });
  const fixture = await serve(t, { manager });
  for (const path of ["/healthz", "/v1/sandboxes/a", "/v1/events", "/v1/sandboxes/a/files?path=/x"]) {
    const reply = await fixture.ask(path, { method: "HEAD" });
    assert.equal(reply.status, 200, path);
    assert.equal(reply.text, "");
  }
  assert.equal((await fixture.ask("/v1/snapshots/none", { method: "HEAD" })).status, 404);
});

async function* endless(): AsyncGenerator<Buffer> {
  for (;;) yield Buffer.alloc(1000);
}

test("a name begins with a letter, a digit or an underscore, in every layer", async (t) => {
  const fixture = await serve(t, { manager: fakeManager({ sandboxes: { get: sandboxInfo } }) });
  for (const name of ["_a", "_", "__proto__", "0", "a"]) {
    assert.deepEqual((await fixture.ask(`/v1/sandboxes/${name}`)).json()["id"], name);
    assert.equal(checkName("sandbox", name), name);
  }
  for (const name of ["-a", ".a", "_a.tmp"]) {
    assert.equal((await fixture.ask(`/v1/sandboxes/${name}`)).json()["code"], "BAD_NAME", name);
    assert.throws(() => checkName("sandbox", name), { code: "BAD_NAME" });
  }
});
