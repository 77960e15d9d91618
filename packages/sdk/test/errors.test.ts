// Errors, as callers see them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ERROR_CODES } from "../../runtime/src/errors.ts";
import * as forkd from "../src/index.ts";
import { FakeDaemon, problem } from "./helpers/fake-daemon.ts";

const { Controller, ForkdError } = forkd;

test("a used tag is a conflict, also with status 400", async () => {
  await using daemon = await FakeDaemon.start((_seen, response) => problem(response, 400, { code: "EXISTS", error: "It exists." }));
  const controller = new Controller({ socket: daemon.socket, retries: 0 });
  await assert.rejects(controller.createSnapshot("a"), { name: "ConflictError", code: "EXISTS", status: 400 });
});

test("every code of the daemon has a class", async () => {
  const expected: Record<string, string> = {
    BAD_NAME: "InvalidRequestError",
    TOO_LARGE: "InvalidRequestError",
    UNSUPPORTED_MEDIA_TYPE: "InvalidRequestError",
    EXEC_FAILED: "InvalidRequestError",
    FILE_FAILED: "FileError",
    FILE_NOT_FOUND: "FileError",
    FILE_DENIED: "FileError",
    UNAUTHORIZED: "AuthenticationError",
    FORBIDDEN: "AuthenticationError",
    NOT_FOUND: "NotFoundError",
    EXISTS: "ConflictError",
    SANDBOX_PAUSED: "ConflictError",
    VMM_EXITED: "SandboxGoneError",
    SANDBOX_LOST: "SandboxGoneError",
    LIMIT_REACHED: "LimitError",
    RATE_LIMITED: "LimitError",
    BUSY: "LimitError",
    EVAL_TIMEOUT: "TimeoutError",
    AGENT_TIMEOUT: "TimeoutError",
    INTERNAL: "ForkdError",
    STOPPING: "ForkdError",
  };
  for (const [code, name] of Object.entries(expected)) {
    const { status } = ERROR_CODES[code as keyof typeof ERROR_CODES];
    await using daemon = await FakeDaemon.start((_seen, response) => problem(response, status, { code, error: "It failed: so." }));
    const controller = new Controller({ socket: daemon.socket, retries: 0 });
    const error = await controller.evalCode("sb-1", "1").catch((reason: unknown) => reason);
    assert.ok(error instanceof ForkdError, code);
    assert.deepEqual([error.name, error.code, error.status], [name, code, status]);
  }
});

test("an error names the request and what to do", async () => {
  await using daemon = await FakeDaemon.start((_seen, response) =>
    problem(response, 409, { code: "IN_USE", error: "It is needed.", details: { sandboxes: ["sb-1"] } }),
  );
  await assert.rejects(new Controller({ socket: daemon.socket }).deleteSnapshot("py"), {
    name: "ConflictError",
    message: "It is needed.",
    hint: "Do something.",
    requestId: "req-1",
    method: "DELETE",
    url: `unix://${daemon.socket}/v1/snapshots/py`,
    details: { sandboxes: ["sb-1"] },
  });
  assert.equal(forkd.ControllerError, ForkdError);
});

test("an answer of a server that is not a daemon", async () => {
  await using daemon = await FakeDaemon.start((_seen, response, count) => {
    if (count === 1) response.writeHead(502).end("<h1>Bad gateway</h1>");
    else response.writeHead(200).end("<h1>Welcome</h1>");
    return true;
  });
  const controller = new Controller({ url: daemon.url });
  await assert.rejects(controller.status(), { status: 502, code: "HTTP_502", body: "<h1>Bad gateway</h1>" });
  await assert.rejects(controller.status(), { code: "BAD_ANSWER" });
});

test("no daemon: the error has the address, and there is no retry", async (t) => {
  // The wait before a retry would never end.
  t.mock.timers.enable({ apis: ["setTimeout"] });
  await assert.rejects(new Controller({ socket: "/nonexistent/forkd.sock" }).health(), {
    name: "ConnectionError",
    code: "DAEMON_UNREACHABLE",
    status: 0,
    message: "Cannot reach the daemon at unix:///nonexistent/forkd.sock: there is no such socket.",
  });
  await assert.rejects(new Controller({ url: "http://127.0.0.1:1", retries: 0 }).health(), {
    name: "ConnectionError",
    message: /^Cannot reach the daemon at http:\/\/127\.0\.0\.1:1: nothing listens there\.$|bad port/,
  });
});

test("a call that takes too long", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  await using daemon = await FakeDaemon.start(() => {
    t.mock.timers.tick(300);
    return true;
  });
  for (const way of ["socket", "url"] as const) {
    const controller = new Controller({ [way]: daemon[way] });
    await assert.rejects(controller.status({ timeoutMs: 300 }), {
      name: "TimeoutError",
      code: "CALL_TIMEOUT",
      message: /GET \/v1\/status.*300 ms/,
    });
  }
  assert.equal(daemon.seen.length, 2);
});

test("an aborted call rejects with the signal's reason", async () => {
  let abort = new AbortController();
  await using daemon = await FakeDaemon.start(() => {
    abort.abort(new Error("enough"));
    return true;
  });
  for (const way of ["socket", "url"] as const) {
    const controller = new Controller({ [way]: daemon[way] });
    abort = new AbortController();
    await assert.rejects(controller.status({ signal: abort.signal }), { message: "enough" });
    await assert.rejects(controller.status({ signal: AbortSignal.abort() }), { name: "AbortError" });
  }
  assert.equal(daemon.seen.length, 2);
});

test("a daemon that is not ready is an answer", async () => {
  await using daemon = await FakeDaemon.start((_seen, response) => {
    response.writeHead(503, { "content-type": "application/json" }).end(JSON.stringify({ ready: false, reason: "starts" }));
    return true;
  });
  assert.deepEqual(await new Controller({ socket: daemon.socket }).ready(), { ready: false, reason: "starts" });
});
