// A running eval: its callbacks, and the kernel's wait for them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { PendingEval } from "../../src/agent/kernel/pending-eval.ts";

const REQUEST = { op: "eval", id: 1, code: "" } as const;
const END = { event: "result", id: 1, count: 2, text: "A", data: { "text/html": "<b>" } } as const;

test("the kernel waits for a callback, but not for one of an abandoned eval", async () => {
  let calls = 0;
  const pending = new PendingEval(REQUEST, {
    onStdout: async () => {
      calls++;
      return new Promise(() => undefined); // such as the callback of a disconnected client
    },
  });
  const waiting = pending.print("stdout", Buffer.from("x"));
  assert.ok(waiting);
  pending.abandon();
  await waiting;
  assert.equal(pending.print("stdout", Buffer.from("y")), undefined);
  assert.equal(calls, 1);
  void pending.end(END, 10);
  assert.equal((await pending.answered).stdout, "xy");
});

test("the value is displayed before the answer", async () => {
  const order: string[] = [];
  const shown = Promise.withResolvers<void>();
  const pending = new PendingEval(REQUEST, {
    onDisplay: async ({ isMain, data }) => {
      order.push(`${isMain} ${String(data["text/html"])}`);
      return shown.promise;
    },
  });
  const answered = pending.outcome.then(({ text, displays }) => order.push(`${text} ${displays.length}`));
  const ended = pending.end(END, 10);
  shown.resolve();
  await Promise.all([ended, answered]);
  assert.deepEqual(order, ["true <b>", "A 1"]);
});

test("displays are bounded in number and size", async () => {
  const pending = new PendingEval(REQUEST, {});
  for (let at = 0; at < 300; at++) void pending.display({ data: {} }, 1);
  void pending.end({ ...END, data: undefined }, 10);
  const many = await pending.answered;
  assert.deepEqual([many.displays.length, many.truncated], [256, true]);
  const large = new PendingEval({ ...REQUEST, id: 2 }, {});
  for (const bytes of [10, 10]) void large.display({ data: {} }, bytes * 1024 * 1024);
  void large.end({ ...END, data: undefined }, 10);
  assert.deepEqual([(await large.answered).displays.length, (await large.answered).truncated], [1, true]);
});
