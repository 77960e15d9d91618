// Switching the guest's network.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Writer } from "../../src/util/codec.ts";
import { switchNetwork } from "../../src/agent/network.ts";
import { T } from "../../src/agent/wire/protocol.ts";
import { FakeAgent, watchUnhandled } from "./fake-agent.ts";

after(watchUnhandled());

test("a guest with network support gets on or off", async () => {
  await using fake = await FakeAgent.listen((agent, { stream }) => agent.send(T.RESULT, stream));
  const agent = await fake.connect();
  await switchNetwork(agent, true, 5000);
  await switchNetwork(agent, false, 5000);
  assert.deepEqual(
    fake.received.map(({ type, payload }) => [type, ...payload]),
    [
      [T.NETWORK, 1],
      [T.NETWORK, 0],
    ],
  );
});

test("a guest without network support is NETWORK_UNSUPPORTED, with its reason", async () => {
  const why = new Writer().str("unsupported").str("Operation not permitted").done();
  await using fake = await FakeAgent.listen((agent, { stream }) => agent.send(T.ERROR, stream, why));
  await assert.rejects(switchNetwork(await fake.connect(), true, 5000), {
    code: "NETWORK_UNSUPPORTED",
    message: /Operation not permitted/,
  });
});

test("a guest that does not answer is AGENT_TIMEOUT", async () => {
  await using fake = await FakeAgent.listen(() => undefined);
  await assert.rejects(switchNetwork(await fake.connect(), true, 20), { code: "AGENT_TIMEOUT" });
});
