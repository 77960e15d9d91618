// File changes from a current agent, with flush requests, and from one of an earlier version.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Writer } from "../../src/util/codec.ts";
import { watchFiles, type FileChange, type Flush } from "../../src/agent/files/watch.ts";
import { CHANNEL, T } from "../../src/agent/wire/protocol.ts";
import { FakeAgent, watchUnhandled, type Behaviour } from "./fake-agent.ts";

after(watchUnhandled());

const HOW = { recursive: false, debounceMs: 0 };

function created(path: string): Buffer {
  return new Writer().u8(0x63).u8(0).str(path).str("").done();
}

/** A watch that reports one change for each flush request on stdin */
function watchTool(ready: string): Behaviour {
  let asked = 0;
  return (agent, { type, stream, payload }) => {
    if (type === T.TOOL) {
      agent.started(stream);
      agent.data(stream, CHANNEL.stdout, ready);
    }
    if (type !== T.DATA) return;
    for (const _ of payload.subarray(1)) {
      agent.data(stream, CHANNEL.stdout, created(`/w/${++asked}`));
      agent.data(stream, CHANNEL.stdout, "F");
    }
  };
}

test("a flush resolves after the reader has taken the earlier changes", async () => {
  await using fake = await FakeAgent.listen(watchTool("S"));
  let flush: Flush | undefined;
  const changes = watchFiles(await fake.connect(), "/w", { ...HOW, onFlush: (given) => (flush = given) });
  assert.deepEqual((await changes.next()).value, { type: "ready" });
  assert.ok(flush);
  const seen: FileChange[] = [];
  const reading = (async () => {
    for await (const change of changes) seen.push(change);
  })();
  for (let round = 1; round <= 3; round++) {
    await flush();
    assert.equal(seen.length, round);
    assert.deepEqual(seen.at(-1), { type: "created", path: `/w/${round}`, directory: false });
  }
  await Promise.all([flush(), flush()]);
  assert.equal(seen.length, 5);
  const [{ stream } = { stream: 0 }] = fake.received.filter(({ type }) => type === T.TOOL);
  fake.exit(stream);
  await reading;
});

test("a pending flush resolves when the watch ends", async () => {
  await using fake = await FakeAgent.listen((agent, { type, stream, payload }) => {
    if (type === T.TOOL) {
      agent.started(stream);
      agent.data(stream, CHANNEL.stdout, "S");
    }
    if (type === T.DATA && payload.length > 1) agent.exit(stream);
  });
  let flush: Flush | undefined;
  const changes = watchFiles(await fake.connect(), "/w", { ...HOW, onFlush: (given) => (flush = given) });
  await changes.next();
  const flushing = flush?.();
  assert.equal((await changes.next()).done, true);
  await flushing;
});

test("an agent of an earlier version gets no flush request", async () => {
  await using fake = await FakeAgent.listen(watchTool("R"));
  const changes = watchFiles(await fake.connect(), "/w", { ...HOW, onFlush: () => assert.fail("it cannot") });
  assert.deepEqual((await changes.next()).value, { type: "ready" });
  await changes.return(undefined);
});
