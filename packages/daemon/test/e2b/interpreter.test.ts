// E2B's code interpreter: its output lines, and the life of a request.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { executionLines, lineOf, type Line } from "../../src/e2b/interpreter/lines.ts";
import { fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import { serve, type Fixture } from "../helpers/serve.ts";
import type { ContextInfo } from "../../src/api/contexts.ts";
import type { EvalEnd, EvalRequest } from "../../src/api/exec.ts";
import type { ManagerApi } from "../../src/service/manager.ts";
import type { EvalEvent } from "../../src/service/running-eval.ts";

const ID = "sb-abcdefgh234567xy";
const HEADERS = { "e2b-sandbox-id": "sbabcdefgh234567xy", "e2b-sandbox-port": "49999" };
const PYTHON: ContextInfo = { id: "python", language: "python", cwd: "/home/user", state: "running" };
const END: EvalEnd = {
  result: null,
  error: null,
  error_type: null,
  traceback: null,
  exit_code: 0,
  truncated: false,
  execution_count: 3,
};

async function* said(...events: (EvalEvent | Error)[]): AsyncGenerator<EvalEvent> {
  for (const event of events) {
    if (event instanceof Error) throw event;
    yield event;
  }
}

async function linesOf(...events: (EvalEvent | Error)[]): Promise<Line[]> {
  return Array.fromAsync(executionLines(said(...events)));
}

test("output, displays and the value, in the order in which clients expect them", async () => {
  const lines = await linesOf(
    { event: "stdout", data: { text: "a" } },
    { event: "result", data: { is_main: false, data: { "text/plain": "<F>", "image/png": "iVBO", "x/y": 1 } } },
    { event: "result", data: { is_main: true, data: { "text/html": "<b>" }, omitted: { "text/latex": 9 } } },
    { event: "end", data: { ...END, result: "'it'" } },
  );
  const timestamp = lines[0]?.["timestamp"];
  assert.ok(!Number.isNaN(Date.parse(String(timestamp))));
  assert.deepEqual(lines, [
    { type: "stdout", text: "a", timestamp },
    { type: "result", is_main_result: false, text: "<F>", png: "iVBO", "x/y": 1 },
    { type: "number_of_executions", execution_count: 3 },
    { type: "result", is_main_result: true, text: "it", html: "<b>", omitted: "text/latex (9 bytes)" },
    { type: "end_of_execution" },
  ]);
});

test("an error of the code, and one of forkd", async () => {
  const error = { error: "ValueError: no: way", error_type: "ValueError", traceback: "Traceback…", exit_code: 1 };
  const lines = await linesOf({ event: "end", data: { ...END, ...error } });
  assert.deepEqual(lines[1], { type: "error", name: "ValueError", value: "no: way", traceback: "Traceback…" });
  const died = await linesOf(new ForkdError("KERNEL_DIED", "The python kernel has ended."));
  assert.deepEqual(died[0], {
    type: "error",
    name: "KERNEL_DIED",
    value: "The python kernel has ended.",
    traceback: "The python kernel has ended.",
  });
  await assert.rejects(linesOf(new ForkdError("AGENT_LOST", "gone")), { code: "AGENT_LOST" }, "a sandbox that has gone breaks the stream");
});

test("a line is ASCII with the same content", () => {
  const line = { type: "stdout", text: "ä 🎉 \u2028 '\n" };
  const text = lineOf(line);
  assert.match(text, /^[\x20-\x7e]+\n$/);
  assert.deepEqual(JSON.parse(text), line);
});

type Asked = { request?: EvalRequest; ensured?: string; restarted?: string };

async function interpreter(t: TestContext, contexts: ContextInfo[] = [PYTHON]): Promise<Fixture & { asked: Asked }> {
  const asked: Asked = {};
  const sandbox = { ...sandboxInfo(ID), created_by: "ci", metadata: {}, created_at_unix_ms: 1, expires_at_unix: null };
  const parts: Partial<ManagerApi["contexts"]> = {
    list: async () => contexts,
    create: async (_id, { language, cwd = "/" }) => {
      if (cwd === "/home/user") throw new ForkdError("EXEC_FAILED", "no such folder");
      return { id: "new-1", language, cwd, state: "running" };
    },
    ensure: async (_id, { language, cwd = "/" }) => {
      asked.ensured = cwd;
      return { ...PYTHON, id: language, language };
    },
    restart: async (_id, context) => {
      asked.restarted = context;
      return PYTHON;
    },
    remove: async () => undefined,
  };
  const manager = fakeManager({
    sandboxes: { get: () => sandbox },
    contexts: parts,
    execution: {
      evalEvents: (_id, request) => {
        asked.request = request;
        return { events: said({ event: "end", data: END }), close: () => undefined };
      },
    },
  });
  return { ...(await serve(t, { manager })), asked };
}

test("code runs in the named context, else in that of its language, with its own variables", async (t) => {
  const { ask, asked } = await interpreter(t);
  const run = async (body: object): Promise<{ status: number; text: string }> =>
    ask("/execute", { method: "POST", headers: HEADERS, body });
  const { status, text } = await run({ code: "1", env_vars: { A: "b" } });
  assert.deepEqual(
    [status, text],
    [200, `${JSON.stringify({ type: "number_of_executions", execution_count: 3 })}\n{"type":"end_of_execution"}\n`],
  );
  assert.deepEqual([asked.request?.context, asked.request?.env, asked.ensured], ["python", { A: "b" }, "/home/user"]);
  await run({ code: "1", language: "javascript", context_id: null });
  assert.equal(asked.request?.context, "node");
  await run({ code: "1", context_id: "python" });
  assert.deepEqual([asked.request?.context, asked.restarted], ["python", undefined]);
  assert.deepEqual(
    [(await run({ code: "1", context_id: "no" })).status, (await run({ code: "1", context_id: "no" })).text],
    [404, "Context no not found"],
  );
  assert.equal((await run({ code: "1", context_id: "python", language: "python" })).status, 400);
  const ours = { typescript: "typescript", ts: "typescript", R: "r", java: "java" };
  for (const [theirs, language] of Object.entries(ours)) {
    await run({ code: "1", language: theirs });
    assert.equal(asked.request?.context, language);
  }
  const unknown = await run({ code: "1", language: "cobol" });
  assert.deepEqual([unknown.status, /"cobol".*python, javascript, typescript, r, java and bash/.test(unknown.text)], [404, true]);
});

test("indented Python loses the indentation of its first line, other languages keep it", async (t) => {
  const { ask, asked } = await interpreter(t, [PYTHON, { ...PYTHON, id: "node", language: "node" }]);
  const sent = async (body: object): Promise<string | undefined> => {
    await ask("/execute", { method: "POST", headers: HEADERS, body });
    return asked.request?.code;
  };
  assert.equal(await sent({ code: "\n  \n    if x:\n        y\n  z\n    w" }), "\n  \nif x:\n    y\n  z\nw");
  assert.equal(await sent({ code: "\tx = 1\n\tx", context_id: "python" }), "x = 1\nx");
  for (const code of ["x\n  y", "", "\n"]) assert.equal(await sent({ code }), code);
  assert.equal(await sent({ code: "  x\n  y", language: "js" }), "  x\n  y");
  assert.equal(await sent({ code: "  x\n  y", context_id: "node" }), "  x\n  y");
});

test("an interpreter that has ended is restarted", async (t) => {
  const { ask, asked } = await interpreter(t, [{ ...PYTHON, state: "ended" }]);
  await ask("/execute", { method: "POST", headers: HEADERS, body: { code: "1", context_id: "python" } });
  assert.equal(asked.restarted, "python");
});

test("contexts are listed, created, restarted and removed", async (t) => {
  const { ask, asked } = await interpreter(t, [PYTHON, { ...PYTHON, id: "node", language: "node" }]);
  const listed = await ask("/contexts", { headers: HEADERS });
  assert.deepEqual(JSON.parse(listed.text), [
    { id: "python", language: "python", cwd: "/home/user" },
    { id: "node", language: "javascript", cwd: "/home/user" },
  ]);
  const made = await ask("/contexts", { method: "POST", headers: HEADERS, body: { language: "js" } });
  assert.deepEqual([made.status, JSON.parse(made.text)], [200, { id: "new-1", language: "javascript", cwd: "/" }]);
  const elsewhere = await ask("/contexts", { method: "POST", headers: HEADERS, body: { cwd: "/srv" } });
  assert.deepEqual(JSON.parse(elsewhere.text), { id: "new-1", language: "python", cwd: "/srv" });
  assert.equal((await ask("/contexts/node/restart", { method: "POST", headers: HEADERS })).status, 204);
  assert.equal(asked.restarted, "node");
  assert.equal((await ask("/contexts/node", { method: "DELETE", headers: HEADERS })).status, 204);
  assert.equal((await ask("/contexts/other", { method: "DELETE", headers: HEADERS })).status, 404);
  assert.equal((await ask("/nothing", { headers: HEADERS })).status, 404);
});
