// Error format, audit lines and metrics of requests, without secrets.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { ERROR_CODES, ForkdError } from "@forkd/runtime/errors";
import { fakeManager } from "../helpers/fake-manager.ts";
import { serve } from "../helpers/serve.ts";
import type { ErrorCode } from "@forkd/runtime/errors";

test("every code has its status and the common form", async (t) => {
  let code: ErrorCode = "INTERNAL";
  const manager = fakeManager({
    execution: {
      ping: async () => {
        throw new ForkdError(code, "Cannot: why.", { details: { free: 3 } });
      },
    },
  });
  const fixture = await serve(t, { manager });
  for (const [name, { status, hint }] of Object.entries(ERROR_CODES)) {
    code = name as ErrorCode;
    const reply = await fixture.ask("/v1/sandboxes/a/ping", { method: "POST" });
    assert.equal(reply.status, status, name);
    const request_id = reply.headers["x-request-id"];
    assert.deepEqual(reply.json(), { error: "Cannot: why.", code: name, hint, request_id, details: { free: 3 } });
    assert.match(String(reply.headers["content-type"]), /^application\/json/);
  }
});

test("an unexpected error is reported without internals, which are in the log", async (t) => {
  const manager = fakeManager({
    execution: {
      ping: async () => {
        throw new TypeError("the secret inside");
      },
    },
  });
  const fixture = await serve(t, { manager });
  const reply = await fixture.ask("/v1/sandboxes/a/ping", { method: "POST", headers: { "x-request-id": "find-me" } });
  assert.equal(reply.status, 500);
  assert.equal(reply.json()["code"], "INTERNAL");
  assert.doesNotMatch(reply.text, /secret inside/);
  const line = fixture
    .logged()
    .split("\n")
    .find((text) => text.includes("find-me"));
  assert.match(line ?? "", /the secret inside/);
});

test("each request is a line of the audit log, and no secret is in it or in the log", async (t) => {
  const secret = "hunter2-hunter2-hunter2";
  const manager = fakeManager({ execution: { exec: async () => ({ stdout: secret }) as never } });
  const fixture = await serve(t, { manager });
  const { token } = fixture.services.tokens.create({ name: "ci", scope: "exec", max_sandboxes: null });
  const headers = { "user-agent": `agent/${"x".repeat(1000)}`, "x-request-id": "r-1" };
  await fixture.ask("/v1/sandboxes/sb-1/exec", { tcp: true, token, body: { args: [secret] }, headers });
  await fixture.ask(`/v1/snapshots/base?cascade&password=${secret}`, { method: "DELETE" });
  await fixture.ask("/v1/sandboxes", { tcp: true, token: secret });
  await fixture.ask("/healthz");
  await fixture.services.audit?.flush();
  const text = await readFile(join(fixture.dir, "audit.log"), "utf8");
  for (const hidden of [secret, token, "authorization"]) {
    assert.ok(!text.includes(hidden));
    assert.ok(!fixture.logged().includes(hidden));
  }
  const lines = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  assert.deepEqual(
    lines.map(({ principal, method, path, sandbox, snapshot, status }) => [principal, method, path, sandbox, snapshot, status]),
    [
      ["ci", "POST", "/v1/sandboxes/sb-1/exec", "sb-1", null, 200],
      ["local", "DELETE", "/v1/snapshots/base", null, "base", 400],
      [null, "GET", "/v1/sandboxes", null, null, 401],
    ],
  );
  const [first, second] = lines;
  assert.equal(first?.["request_id"], "r-1");
  assert.equal(first?.["remote"], "127.0.0.1");
  assert.equal(second?.["remote"], "unix");
  assert.match(String(first?.["time"]), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.equal(String(first?.["user_agent"]).length, 256);
  assert.ok(Number.isInteger(first?.["latency_us"]));
});

test("requests that cannot be routed are logged too", async (t) => {
  const fixture = await serve(t);
  const given = [
    "GET /v1/%zz HTTP/1.1\r\nHost: localhost\r\nUser-Agent: odd\r\n",
    "GET /%c0%ae?token=hidden HTTP/1.1\r\nHost: localhost\r\n",
    `GET /v1/sandboxes/${"a".repeat(600)} HTTP/1.1\r\nHost: localhost\r\n`,
    "GET //%%% HTTP/1.1\r\nHost: localhost\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n",
    "PROPFIND /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n",
    "GET /version HTTP/1.1\r\n",
    "GET /version HTTP/1.1\r\nHost: localhost\r\nExpect: the-unexpected\r\n",
    "CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\n",
  ];
  for (const head of given) {
    const socket = connect(fixture.port, "127.0.0.1");
    socket.end(`${head}Connection: close\r\n\r\n`);
    const text = (await Array.fromAsync(socket)).join("");
    assert.match(text, /^HTTP\/1\.1 4\d\d [^]*"request_id"/, head);
  }
  assert.equal(await fixture.services.inFlight.idle(patience()), true);
  await fixture.services.audit?.flush();
  const lines = (await readFile(join(fixture.dir, "audit.log"), "utf8")).trim().split("\n");
  const seen = lines.map((line) => JSON.parse(line) as { method: string; status: number; principal: unknown; remote: string });
  assert.deepEqual(
    seen.map(({ method }) => method),
    given.map((head) => head.split(" ")[0]),
  );
  for (const { status, principal, remote } of seen)
    assert.deepEqual([status >= 400 && status < 499, principal, remote], [true, null, "127.0.0.1"]);
  assert.doesNotMatch(lines.join("\n"), /hidden/);
});

test("a request whose body is not HTTP is logged with its answer", async (t) => {
  const writeFile = async (
    _id: string,
    _query: unknown,
    content: AsyncIterable<Uint8Array>,
  ): Promise<{ bytes: number; isOwned: boolean }> => {
    return { bytes: (await Array.fromAsync(content)).length, isOwned: true };
  };
  const fixture = await serve(t, { manager: fakeManager({ files: { write: writeFile } }) });
  for (const [method, path] of [
    ["POST", "/v1/sandboxes"],
    ["PUT", "/v1/sandboxes/a/files?path=/x"],
  ]) {
    const socket = connect(fixture.socket);
    const headers = "Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nX-Request-Id: odd-body\r\n";
    socket.write(`${method} ${path} HTTP/1.1\r\n${headers}\r\n3\r\nabc\r\nno chunk\r\n`);
    const text = (await Array.fromAsync(socket)).join("");
    assert.match(text, /^HTTP\/1\.1 400 [^]*"request_id":"odd-body"\}$/, `${method}: one answer and no more`);
    assert.equal(await fixture.services.inFlight.idle(patience()), true);
  }
  await fixture.services.audit?.flush();
  const lines = (await readFile(join(fixture.dir, "audit.log"), "utf8")).trim().split("\n");
  for (const [i, method] of ["POST", "PUT"].entries())
    assert.match(lines[i] ?? "", new RegExp(`"request_id":"odd-body".*"method":"${method}".*"status":400`));
});

test("where clients of the older API expect another status, the route states it, and the code is unchanged", async (t) => {
  const exists = async (): Promise<never> => {
    throw new ForkdError("EXISTS", "Cannot make it: it exists already.");
  };
  const manager = fakeManager({ snapshots: { create: exists, compact: exists }, workspaces: { create: exists } });
  const fixture = await serve(t, { manager });
  for (const [path, body, status, code] of [
    ["/v1/snapshots", { tag: "a" }, 400, "EXISTS"],
    ["/v1/snapshots/a/compact", { to: "b" }, 409, "EXISTS"],
    ["/v1/snapshots/a/compact", { to: "a" }, 400, "BAD_REQUEST"],
    ["/v1/workspaces", { name: "a", snapshot_tag: "b" }, 409, "EXISTS"],
  ] as const) {
    const reply = await fixture.ask(path, { body });
    assert.deepEqual([reply.status, reply.json()["code"]], [status, code], path);
  }
});

test("requests and errors are counted by route, never by path", async (t) => {
  const fixture = await serve(t);
  await fixture.ask("/v1/snapshots/one");
  await fixture.ask("/v1/snapshots/two");
  await fixture.ask("/nowhere");
  const { text, headers } = await fixture.ask("/metrics");
  assert.match(String(headers["content-type"]), /^text\/plain; version=/);
  assert.match(text, /^forkd_http_requests_total\{route="\/v1\/snapshots\/:tag",method="GET",status="404"\} 2$/m);
  assert.match(text, /^forkd_http_requests_total\{route="unknown",method="GET",status="404"\} 1$/m);
  assert.match(text, /^forkd_errors_total\{code="NOT_FOUND"\} 3$/m);
  assert.match(text, /^forkd_build_info\{version="1.2.3"\} 1$/m);
});

test("the daemon reports its settings, its version and its interface", async (t) => {
  const fixture = await serve(t);
  assert.deepEqual((await fixture.ask("/v1/config")).json()["branch_concurrency"], { value: 4, source: "default" });
  assert.deepEqual((await fixture.ask("/version")).json(), { version: "1.2.3", api: "v1" });
  assert.match(String((await fixture.ask("/v1/openapi.json")).json()["openapi"]), /^3\./);
});

test("readiness has the reason, and new work is refused while stopping", async (t) => {
  const fixture = await serve(t);
  assert.deepEqual((await fixture.ask("/readyz")).json(), { ready: true, reason: null });
  fixture.stopping.abort();
  const reply = await fixture.ask("/readyz");
  assert.equal(reply.status, 503);
  assert.deepEqual(reply.json(), { ready: false, reason: "stopping" });
  assert.equal((await fixture.ask("/healthz")).status, 200);
  const refused = await fixture.ask("/v1/sandboxes");
  assert.equal(refused.status, 503);
  assert.equal(refused.json()["code"], "STOPPING");
});
