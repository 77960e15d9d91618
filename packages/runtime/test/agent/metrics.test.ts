// Resource usage of a guest.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Writer } from "../../src/util/codec.ts";
import { guestMetrics } from "../../src/agent/metrics.ts";
import { T } from "../../src/agent/wire/protocol.ts";
import { FakeAgent, watchUnhandled } from "./fake-agent.ts";

after(watchUnhandled());

/** An agent that gives these answers in order, and only to METRICS */
async function agentOf(answers: readonly (readonly number[])[]): Promise<FakeAgent> {
  const left = [...answers];
  return FakeAgent.listen((agent, { type, stream }) => {
    assert.equal(type, T.METRICS);
    const out = new Writer();
    for (const value of left.shift() ?? []) out.u64(BigInt(value));
    agent.send(T.RESULT, stream, out.done());
  });
}

test("CPU use is measured between two answers, the other values are those of the last one", async () => {
  await using fake = await agentOf([
    [200, 1000, 1000, 900, 10, 5000, 100],
    [250, 1100, 1000, 600, 210, 5000, 1200],
  ]);
  const memory = { memTotal: 1000, memUsed: 400, memCache: 210 };
  assert.deepEqual(await guestMetrics(await fake.connect(), 2), { cpuUsedPct: 100, ...memory, diskUsed: 1200, diskTotal: 5000 });
});

test("forged counters are bounded by the resources of the VM", async () => {
  for (const [busy, all, expected] of [
    [900, 10, 100],
    [-5, 10, 0],
    [5, 0, 0],
    [5, -10, 0],
  ] as const) {
    await using fake = await agentOf([
      [1000, 1000, 0, 0, 0, 0, 0],
      [1000 + busy, 1000 + all, 10, 20, 0, 0, 0],
    ]);
    const metrics = await guestMetrics(await fake.connect(), 1);
    assert.deepEqual([metrics?.cpuUsedPct, metrics?.memUsed], [expected, 0]);
  }
});

test("an agent of an earlier version gives none, and a malformed answer is refused", async () => {
  const unsupported = new Writer().str("unsupported").str("unknown frame type").done();
  await using older = await FakeAgent.listen((agent, { stream }) => agent.send(T.ERROR, stream, unsupported));
  assert.equal(await guestMetrics(await older.connect(), 1), undefined);
  await using short = await agentOf([[1, 2]]);
  await assert.rejects(guestMetrics(await short.connect(), 1));
});
