// Progress: only on request, increasing, rate-limited.

import assert from "node:assert/strict";
import { test } from "node:test";
import { heartbeat, reporter } from "../src/progress.ts";
import type { ServerContext } from "@modelcontextprotocol/server";

type Told = { progress: number; message: string };

function contextOf(token: string | undefined, told: Told[]): ServerContext {
  const mcpReq = {
    _meta: token === undefined ? {} : { progressToken: token },
    notify: async ({ params }: { params: Told }) => told.push(params),
  };
  return { mcpReq } as unknown as ServerContext;
}

test("a client that did not request progress gets none", () => {
  const told: Told[] = [];
  reporter(contextOf(undefined, told))("a step");
  assert.deepEqual(told, []);
});

test("each step is reported at once, repeats of a step at a bounded rate", () => {
  const told: Told[] = [];
  let nowMs = 0;
  const progress = reporter(contextOf("t", told), () => nowMs);
  for (const [ms, message] of [
    [0, "10 bytes"],
    [1, "20 bytes"],
    [2, "boot"],
    [3, "freeze"],
    [600, "freeze"],
    [601, "freeze"],
  ] as const) {
    nowMs = ms;
    progress(message);
  }
  assert.deepEqual(
    told.map(({ progress, message }) => [progress, message]),
    [
      [1, "10 bytes"],
      [2, "boot"],
      [3, "freeze"],
      [4, "freeze"],
    ],
  );
});

test("a silent call reports progress until it ends", (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  const told: string[] = [];
  const beats = heartbeat((message) => told.push(message));
  context.mock.timers.tick(10_000);
  beats[Symbol.dispose]();
  context.mock.timers.tick(10_000);
  assert.deepEqual(told, ["at work for 5 s", "at work for 10 s"]);
});
