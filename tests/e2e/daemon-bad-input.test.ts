// Invalid and incomplete requests: the daemon rejects them with a clear error and changes nothing.

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { after, before, describe, it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { routes, type RouteName } from "../../packages/daemon/src/api/routes.ts";
import { badBodies, badQueries, encode, NAME_TRICKS, takesBody, takesQuery } from "../contract/bad-values.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { tracesOf } from "../helpers/host.ts";
import { until } from "../helpers/until.ts";
import { SpecClient, type Problem } from "../helpers/spec-client.ts";

const MIB = 1024 * 1024;
const ROUTES = Object.keys(routes) as RouteName[];
const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/** Valid bodies, from which invalid ones are derived */
const GOOD: Partial<Record<RouteName, Record<string, unknown>>> = {
  createSnapshot: { tag: "new" },
  createImage: { name: "new", packages: ["python3"] },
  createSandboxes: { snapshot_tag: "python" },
  compactSnapshot: { to: "new" },
  execCommand: { args: ["true"] },
  evalCode: { code: "1" },
  createToken: { name: "new" },
  createWorkspace: { name: "new", snapshot_tag: "python" },
  makeDirectory: { path: "/tmp/x" },
  moveFile: { from: "/none/x", to: "/none/y" },
  copyFile: { from: "/none/x", to: "/none/y" },
  chmodFile: { path: "/none/x", mode: "644" },
  chownFile: { path: "/none/x", owner: "root" },
  makeSymlink: { target: "x", path: "/none/x" },
};

describe("bad input", () => {
  let daemon: TestDaemon;
  let rest: SpecClient;
  let id: string;
  let untouched: unknown;
  let slow: { headers: Promise<{ answer: string; isBodyOpen: boolean }>; body: Socket };

  before(async () => {
    daemon = await TestDaemon.start();
    rest = new SpecClient({ socketPath: daemon.socket });
    const body = await open();
    const headers = talk("GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
    slow = { body, headers: headers.then((answer) => ({ answer, isBodyOpen: !body.destroyed })) };
    slow.body.write("POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{");
    await daemon.makePython();
    const [sandbox] = await daemon.controller.spawnSandboxes("python", { name: "only" });
    id = sandbox?.id ?? "";
    untouched = await state();
  });

  after(async () => {
    slow.body.destroy();
    await daemon[Symbol.asyncDispose]();
  });

  it("wrong, missing and unknown fields of every body", async () => {
    for (const route of ROUTES.filter(takesBody)) {
      for (const { what, value } of badBodies(route, GOOD[route] ?? {})) {
        const problem = await rest.problem(routes[route].method, pathOf(route), { json: value });
        assertRefused(problem, `${route}: ${what}`);
      }
    }
    await assertUntouched();
  });

  it("wrong, repeated and unknown fields of every query", async () => {
    for (const route of ROUTES.filter((name) => routes[name].scope !== "none")) {
      const queries = takesQuery(route) ? badQueries(route) : ["surprise=1"];
      for (const query of queries) {
        const json = takesBody(route) ? { json: GOOD[route] ?? {} } : {};
        assertRefused(await rest.problem(routes[route].method, `${pathOf(route)}?${query}`, json), `${route}: ${query}`);
      }
    }
    await assertUntouched();
  });

  it("every name in every path", async () => {
    for (const route of ROUTES.filter((name) => routes[name].path.includes(":"))) {
      const { method, path } = routes[route];
      for (const trick of NAME_TRICKS) {
        const json = takesBody(route) ? { json: GOOD[route] ?? {} } : {};
        const problem = await rest.problem(method, path.replace(/:\w+/, encode(trick)) + queryFor(route), json);
        assertRefused(problem, `${route}: ${JSON.stringify(trick)}`);
      }
      for (const raw of ["%2e%2e", "%2e%2e%2f%2e%2e", "%00", "%0a", "..%2f..", "%252e%252e", "%zz", "%", "%c0%ae"]) {
        const problem = await rest.problem(
          method,
          path.replace(/:\w+/, raw) + queryFor(route),
          takesBody(route) ? { json: GOOD[route] ?? {} } : {},
        );
        assertRefused(problem, `${route}: ${raw}`);
      }
    }
    await assertUntouched();
  });

  it("bodies that are not JSON, not an object, or of another type", async () => {
    const texts = [
      '{"snapshot_tag": "python"',
      "{",
      "",
      "nothing",
      "[]",
      '"python"',
      "1",
      "null",
      '{"snapshot_tag": NaN}',
      "{'a': 1}",
      "\ufeff{}",
    ];
    const bytes = [...texts.map((body) => Buffer.from(body)), Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]), Buffer.alloc(10)];
    for (const route of ROUTES.filter((name) => takesBody(name) && GOOD[name])) {
      const { method } = routes[route];
      for (const body of bytes) {
        const problem = await rest.problem(method, pathOf(route), { bytes: body, headers: { "content-type": "application/json" } });
        assertRefused(problem, `${route}: ${body.toString()}`);
      }
      for (const type of [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
      ]) {
        const sent = { bytes: Buffer.from(JSON.stringify(GOOD[route])), headers: { "content-type": type } };
        const problem = await rest.problem(method, pathOf(route), sent);
        assert.deepEqual([problem.code, problem.status], ["UNSUPPORTED_MEDIA_TYPE", 415], `${route}: ${type}`);
      }
    }
    await assertUntouched();
  });

  it("repeated keys, and keys that change an object's prototype", async () => {
    for (const body of [
      '{"snapshot_tag": "python", "snapshot_tag": "python"}',
      '{"snapshot_tag": "nothing", "snapshot\\u005ftag": "python"}',
      '{"snapshot_tag": "python", "metadata": {"a": "1", "a": "2"}}',
      '{"snapshot_tag": "python", "__proto__": {"n": 2}}',
    ]) {
      const sent = { bytes: Buffer.from(body), headers: { "content-type": "application/json" } };
      assertRefused(await rest.problem("POST", "/v1/sandboxes", sent), body);
    }
    await assertUntouched();
  });

  it("bodies that are too large or too deep", async () => {
    const large = Buffer.from(JSON.stringify({ snapshot_tag: "python", metadata: { a: "x".repeat(17 * MIB) } }));
    const json = { "content-type": "application/json" };
    for (const [method, path] of [
      ["POST", "/v1/sandboxes"],
      ["POST", "/v1/snapshots"],
      ["PATCH", `/v1/sandboxes/${id}`],
      ["POST", `/v1/sandboxes/${id}/eval`],
    ] as const) {
      for (const connection of ["close", "keep-alive"]) {
        const whole = await rest.problem(method, path, { bytes: large, headers: { ...json, connection } });
        assert.deepEqual([whole.code, whole.status], ["TOO_LARGE", 413], `${method} ${path} (${connection})`);
      }
      const chunked = await rest.problem(method, path, { bytes: large, headers: { ...json, "transfer-encoding": "chunked" } });
      assert.deepEqual([chunked.code, chunked.status], ["TOO_LARGE", 413], `${method} ${path} in pieces`);
    }
    for (const deep of [`${"[".repeat(200_000)}${"]".repeat(200_000)}`, `${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}`]) {
      assertRefused(await rest.problem("POST", "/v1/sandboxes", { bytes: Buffer.from(deep), headers: json }), "deep");
      const inside = `{"snapshot_tag": "python", "metadata": ${deep}}`;
      assertRefused(await rest.problem("POST", "/v1/sandboxes", { bytes: Buffer.from(inside), headers: json }), "deep inside");
    }
    await assertUntouched();
  });

  it("an upload with an impossible target is refused at any size", async () => {
    const bytes = Buffer.alloc(32 * MIB);
    for (const connection of ["close", "keep-alive"]) {
      const missing = await rest.problem("PUT", `/v1/sandboxes/${id}/files?path=/none/x`, { bytes, headers: { connection } });
      assert.deepEqual([missing.code, missing.status], ["FILE_NOT_FOUND", 404], connection);
      assertRefused(await rest.problem("PUT", `/v1/sandboxes/${id}/files?path=none/x`, { bytes, headers: { connection } }), connection);
      assertRefused(
        await rest.problem("PUT", "/v1/sandboxes/sb-nothing/files?path=/tmp/x", { bytes, headers: { connection } }),
        connection,
      );
    }
    await assertUntouched();
  });

  it("methods that a path does not support", async () => {
    const isAt = (path: string, route: RouteName): boolean =>
      new RegExp(`^${routes[route].path.replaceAll(".", "\\.").replaceAll(/:\w+/g, "[^/]+")}$`).test(path);
    for (const path of new Set(ROUTES.map((route) => routes[route].path.replaceAll(/:\w+/g, "python")))) {
      const taken: string[] = ROUTES.filter((route) => isAt(path, route)).map((route) => routes[route].method);
      if (taken.includes("ALL") || path.endsWith("*")) continue;
      for (const method of [...METHODS, "OPTIONS"].filter((name) => !taken.includes(name))) {
        const { status, body, headers } = await rest.send(method, path);
        assert.deepEqual([status, (body as Problem).code], [405, "METHOD_NOT_ALLOWED"], `${method} ${path}`);
        assert.deepEqual(new Set(String(headers["allow"]).split(", ")), new Set([...taken, ...(taken.includes("GET") ? ["HEAD"] : [])]));
      }
    }
    await assertUntouched();
  });

  it("paths that do not exist", async () => {
    for (const path of [
      "/",
      "/v1",
      "/v4/sandboxes",
      "/V1/sandboxes",
      "//v1/sandboxes",
      "/v1//sandboxes",
      "/v1/sandboxes/x/unknown",
      "/healthz/../v1/sandboxes",
      "/v1/sandboxes/..",
      "/v1/snapshots/../sandboxes",
      "/v1/sandboxes/../../etc/passwd",
      "/v1/sandboxes%2fonly",
      "/%2e%2e/v1/status",
      "/v1;x/status",
    ]) {
      for (const method of METHODS) {
        const { code, status } = await rest.problem(method, path);
        assert.ok([400, 404, 405].includes(status), `${method} ${path}: ${status} ${code}`);
      }
    }
    await assertUntouched();
  });

  it("requests that are not HTTP, or ambiguous HTTP", async () => {
    const post = "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    for (const [what, request, code] of [
      ["noise", "hello\r\n\r\n", "BAD_REQUEST"],
      ["TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "BAD_REQUEST"],
      ["no host", "GET /v1/sandboxes HTTP/1.1\r\nConnection: close\r\n\r\n", "BAD_REQUEST"],
      ["a header without end", `GET / HTTP/1.1\r\nHost: localhost\r\nX: ${"x".repeat(20_000)}`, "TOO_LARGE"],
      ["two lengths", `${post}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}`, "BAD_REQUEST"],
      ["a length and pieces", `${post}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, "BAD_REQUEST"],
      ["a length that is no number", `${post}Content-Length: two\r\n\r\n{}`, "BAD_REQUEST"],
      ["a negative length", `${post}Content-Length: -1\r\n\r\n{}`, "BAD_REQUEST"],
      ["a piece of no length", `${post}Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n`, "BAD_REQUEST"],
      ["a path with a space", "GET /v1/sandboxes/a b HTTP/1.1\r\nHost: localhost\r\n\r\n", "BAD_REQUEST"],
      ["a path with ..", "GET /v1/snapshots/../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "NOT_FOUND"],
    ] as const) {
      const answer = await talk(request);
      const [, status] = /^HTTP\/1\.1 (\d+)/.exec(answer) ?? [];
      assert.match(status ?? "", /^4\d\d$/, `${what}: ${answer}`);
      assertRefused(JSON.parse(answer.slice(answer.indexOf("{"), answer.lastIndexOf("}") + 1)) as Problem, what, [code]);
    }
    await assertUntouched();
  });

  it("a client that stops in the middle of its body", async () => {
    const socket = await open();
    socket.write(
      'POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 26\r\n\r\n{"snapshot_tag":"pyth',
    );
    await rest.send("GET", "/v1/sandboxes");
    socket.destroy();
    const upload = await open();
    upload.write(`PUT /v1/sandboxes/${id}/files?path=/tmp/half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf`);
    await rest.send("GET", "/v1/sandboxes");
    upload.destroy();
    await assertUntouched();
    assert.equal((await rest.problem("GET", `/v1/sandboxes/${id}/files/stat?path=/tmp/half`)).code, "FILE_NOT_FOUND");
  });

  it("a client that closes its sending side gets its answer", async () => {
    const answer = await talk("GET /v1/sandboxes/only HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", { halfClose: true });
    assert.match(answer, /^HTTP\/1\.1 200 /);
    assert.match(answer, new RegExp(id));
  });

  it("a client that disconnects in the middle of a fork leaves no sandbox", async () => {
    const controller = new AbortController();
    const asked = rest.open("POST", "/v1/sandboxes", { json: { snapshot_tag: "python", n: 8 }, signal: controller.signal });
    asked.catch(() => undefined); // aborted by the signal
    await until(() => vmms().length > 1);
    controller.abort();
    await assert.rejects(asked);
    await until(async () => vmms().length === 1 && isDeepStrictEqual(await state(), untouched));
  });

  it("a client with an idempotency key can disconnect and get its answer later", async () => {
    const json = { snapshot_tag: "python", n: 2 };
    const headers = { "idempotency-key": "comes-back" };
    const controller = new AbortController();
    const asked = rest.open("POST", "/v1/sandboxes", { json, headers, signal: controller.signal });
    asked.catch(() => undefined); // aborted by the signal
    await until(() => vmms().length > 1);
    controller.abort();
    await assert.rejects(asked);
    const again = await rest.send("POST", "/v1/sandboxes", { json, headers });
    assert.deepEqual([again.status, (again.body as object[]).length], [201, 2]);
    assert.equal((await daemon.controller.listSandboxes()).length, 3);
    const other = await rest.problem("POST", "/v1/sandboxes", { json: { ...json, n: 1 }, headers });
    assert.deepEqual([other.code, other.status], ["IDEMPOTENCY_MISMATCH", 422]);
    for (const { id: made } of again.body as { id: string }[]) await daemon.controller.killSandbox(made);
    await assertUntouched();
  });

  it("invalid keys and ids in headers", async () => {
    const json = { snapshot_tag: "python" };
    for (const key of ["", "x".repeat(129), "k\u00e4se", "\t"])
      assertRefused(await rest.problem("POST", "/v1/sandboxes", { json, headers: { "idempotency-key": key } }), `key ${key}`);
    assertRefused(
      await rest.problem("POST", "/v1/tokens", { json: { name: "new" }, headers: { "idempotency-key": "secret" } }),
      "a secret",
    );
    assertRefused(await rest.problem("GET", "/v1/events", { headers: { "last-event-id": "last" } }), "Last-Event-ID");
    const { headers } = await rest.send("GET", "/v1/sandboxes", { headers: { "x-request-id": "a b<script>" } });
    assert.match(String(headers["x-request-id"]), /^[0-9a-f-]{36}$/);
    await assertUntouched();
  });

  it("endless headers are cut off with an answer, while other requests are served", async () => {
    assert.equal((await rest.send("GET", "/v1/sandboxes")).status, 200);
    const { answer, isBodyOpen } = await slow.headers;
    assert.match(answer, /^HTTP\/1\.1 408 /);
    assert.match(answer, /"code":"REQUEST_TIMEOUT"/);
    assert.ok(isBodyOpen, "a slow body has its own, longer limit");
    await assertUntouched();
  });

  function pathOf(route: RouteName): string {
    const { path } = routes[route];
    const subject = path.startsWith("/v1/sandboxes") ? id : path.startsWith("/v1/snapshots") ? "python" : "nothing";
    return path.replace(/:\w+/, subject);
  }

  /** Required query of a route */
  function queryFor(route: RouteName): string {
    return routes[route].path.includes("/files") && !takesBody(route) ? "?path=/tmp/x" : "";
  }

  function assertRefused(problem: Problem, what: string, codes = ["BAD_REQUEST", "BAD_NAME", "NOT_FOUND"]): void {
    assert.ok(codes.includes(problem.code), `${what}: ${JSON.stringify(problem)}`);
    assert.ok(problem.error && problem.hint && problem.request_id, what);
    assert.equal(problem.error.includes("\0"), false, what);
  }

  /** All state that a request could change */
  async function state(): Promise<unknown> {
    const sandboxes = await daemon.controller.listSandboxes({ state: ["running", "paused", "ended", "lost"] });
    return {
      sandboxes: sandboxes.map((sandbox) => ({ ...sandbox, last_active_unix: 0 })),
      snapshots: await daemon.controller.listSnapshots(),
      workspaces: await daemon.controller.listWorkspaces(),
      tokens: await daemon.controller.listTokens(),
      images: (await daemon.controller.listImages()).map(({ names }) => names),
      traces: await tracesOf(daemon.home),
      run: await daemon.vmFolders(),
    };
  }

  async function assertUntouched(): Promise<void> {
    assert.deepEqual(await state(), untouched);
  }

  function vmms(): number[] {
    return daemon.vmms();
  }

  async function open(): Promise<Socket> {
    const socket = connect({ path: daemon.socket, allowHalfOpen: true });
    await once(socket, "connect");
    return socket;
  }

  /** All bytes that the daemon sends before it closes the connection */
  async function talk(request: string, opts: { halfClose?: boolean } = {}): Promise<string> {
    const socket = await open();
    socket.on("error", () => undefined); // a reset may follow the answer
    socket.write(Buffer.from(request, "latin1"));
    if (opts.halfClose) socket.end();
    try {
      return await text(Readable.from(socket));
    } finally {
      socket.destroy();
    }
  }
});
