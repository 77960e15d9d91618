// Programs in guests that do not follow the protocol.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { ForkdError, type Controller, type ProcessStreamEvent } from "forkd";
import { TOOLS } from "../src/tools.ts";

const STARTED: ProcessStreamEvent = {
  type: "started",
  cursor: "0-0",
  id: 7,
  pid: 8,
  tag: null,
  terminal: false,
  stdout_offset: 0,
  stderr_offset: 0,
};

/** A program that starts and never ends */
function endless(more: Partial<Controller> = {}): { forkd: Controller; killed: string[] } {
  const killed: string[] = [];
  const forkd = {
    streamProcess: async function* (_id: string, _args: string[], { signal }: { signal: AbortSignal }) {
      yield STARTED;
      if (!signal.aborted) await once(signal, "abort");
      throw signal.reason;
    },
    killProcess: async (_id: string, process: string) => {
      killed.push(process);
      throw new ForkdError("AGENT_LOST", "The guest no longer answers.");
    },
    ...more,
  };
  return { forkd: forkd as unknown as Controller, killed };
}

function exec(forkd: Controller, signal: AbortSignal = new AbortController().signal): Promise<unknown> {
  const tool = TOOLS.find(({ name }) => name === "exec_command");
  assert.ok(tool);
  const args = tool.input.parse({ sandbox_id: "sb-1", args: ["true"], timeout_secs: 1 });
  return tool.run(args as never, { forkd, signal, progress: () => {}, owner: { make: () => assert.fail() } });
}

test("a guest that ignores the time-out does not block the call", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const running = exec(endless().forkd);
  context.mock.timers.tick(11_000);
  await assert.rejects(running, { code: "AGENT_TIMEOUT" });
});

test("a program that cannot be killed does not block a cancelled call", async () => {
  const stop = new AbortController();
  const { forkd, killed } = endless();
  const running = exec(forkd, stop.signal);
  setImmediate(() => stop.abort());
  await assert.rejects(running, { code: "AGENT_LOST" });
  assert.deepEqual(killed, ["7"]);
});

test("an output that ends without an exit code is an error", async () => {
  const { forkd } = endless({
    streamProcess: async function* () {
      yield STARTED;
    },
  });
  await assert.rejects(exec(forkd), { code: "BAD_ANSWER" });
});

test("displayed objects are included while they fit, and pictures with their size only", async () => {
  const tool = TOOLS.find(({ name }) => name === "eval_code");
  assert.ok(tool);
  const shown = { "text/plain": "<Figure>", "image/png": "iVBO", "text/html": "x".repeat(5000) };
  const answer = { result: null, error: null, traceback: null, stdout: "", stderr: "", truncated: false };
  const forkd = { evalCode: async () => ({ ...answer, results: [{ is_main: false, data: shown }] }) } as unknown as Controller;
  const call = { forkd, signal: new AbortController().signal, progress: () => {}, owner: { make: () => assert.fail() } };
  const given = tool.input.parse({ sandbox_id: "sb-1", code: "1", max_output_bytes: 1000 });
  const { results } = (await tool.run(given as never, call)) as { results: unknown };
  assert.deepEqual(results, [{ is_main: false, data: { "text/plain": "<Figure>" }, omitted: { "image/png": 6, "text/html": 5002 } }]);
});
