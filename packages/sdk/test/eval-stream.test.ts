// Streamed evals.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Controller, Sandbox } from "../src/index.ts";
import { FakeDaemon, type Override } from "./helpers/fake-daemon.ts";
import { EVAL_EVENTS, evalResult } from "./helpers/samples.ts";

/** A daemon that streams these events for an eval */
function streaming(...parts: string[]): Override {
  return ({ route }, response) => {
    if (route !== "evalStream") return false;
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(parts.join(""));
    return true;
  };
}

test("callbacks are called in order, and the result is complete", async () => {
  await using daemon = await FakeDaemon.start(streaming(...EVAL_EVENTS));
  const sandbox = await Sandbox.connect("sb-1", { controller: new Controller({ socket: daemon.socket }) });
  const seen: unknown[] = [];
  const result = await sandbox.eval("x", {
    onStdout: (text) => void seen.push(text),
    onStderr: async (text) => void seen.push(text),
    onResult: ({ data }) => void seen.push(data),
  });
  assert.deepEqual(seen, ["one\n", { "text/html": "<b>" }, "two"]);
  const results = [{ is_main: false, data: { "text/html": "<b>" } }];
  assert.deepEqual(result, { ...evalResult, stdout: "one\n", stderr: "two", results });
});

test("an error of the daemon rejects the call, and so does a stream without an end", async () => {
  const [first] = EVAL_EVENTS;
  const failed = JSON.stringify({ error: "Too late.", code: "EVAL_TIMEOUT", hint: "", request_id: "r" });
  await using daemon = await FakeDaemon.start(streaming(first, `event: error\ndata: ${failed}\n\n`));
  const controller = new Controller({ socket: daemon.socket, retries: 0 });
  const onStdout = (): undefined => undefined;
  await assert.rejects(controller.evalCode("sb-1", "x", { onStdout }), { code: "EVAL_TIMEOUT" });
  daemon.override = streaming(first);
  await assert.rejects(controller.evalCode("sb-1", "x", { onStdout }), { name: "ConnectionError" });
});

test("contexts are given by id or as objects", async () => {
  await using daemon = await FakeDaemon.start();
  const sandbox = await Sandbox.connect("sb-1", { controller: new Controller({ socket: daemon.socket }) });
  const context = await sandbox.contexts.create("bash", { cwd: "/srv" });
  assert.deepEqual(await sandbox.contexts.list(), [context]);
  await sandbox.contexts.interrupt(context);
  await sandbox.contexts.restart(context.id);
  await sandbox.contexts.remove(context);
  assert.deepEqual(daemon.last.params, { id: "sb-1", context: context.id });
});
