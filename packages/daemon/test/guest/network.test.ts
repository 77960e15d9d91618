// The guest's side of the network is switched, or it is said that it cannot be.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Writer } from "../../src/guest/codec.ts";
import { switchNetwork } from "../../src/guest/network.ts";
import { T } from "../../src/guest/protocol.ts";
import { FakeAgent, watchUnhandled } from "./fake-agent.ts";

after(watchUnhandled());

test("a guest that can is told on or off", async () => {
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

test("a guest that cannot is NETWORK_UNSUPPORTED, with its reason", async () => {
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
