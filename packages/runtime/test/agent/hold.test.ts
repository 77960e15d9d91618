// Holds before a snapshot, and the certificate's statement about the time before a fork was independent.

import assert from "node:assert/strict";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { Writer } from "../../src/util/codec.ts";
import { beFirst, goOn, holdProcesses } from "../../src/agent/hold.ts";
import type { KernelFacts } from "../../src/agent/kernel/kernel.ts";
import { T } from "../../src/agent/wire/protocol.ts";
import { Network } from "../../src/egress/network.ts";
import { NO_NETWORK } from "../../src/egress/policy.ts";
import { personalize, type Personality, type UnclaimedVm } from "../../src/sandbox/fork.ts";
import type { ForkCertificate } from "../../src/sandbox/certificate.ts";
import { FakeAgent, KEY, watchUnhandled } from "./fake-agent.ts";

after(watchUnhandled());

const UNSUPPORTED = new Writer().str("unsupported").str("unknown frame type").done();

describe("before a snapshot", () => {
  test("an agent gets the hold request, and answers with its clock", async () => {
    await using fake = await FakeAgent.listen((agent, { stream }) => agent.send(T.RESULT, stream, new Writer().u64(5_000_000n).done()));
    const agent = await fake.connect();
    assert.equal(await holdProcesses(agent, patience()), true);
    assert.equal((await beFirst(agent, patience()))?.guestMs, 5);
    await goOn(agent, patience());
    assert.deepEqual(
      fake.received.map(({ type, payload }) => [type, ...payload]),
      [
        [T.HOLD, 1],
        [T.HOLD, 2],
        [T.HOLD, 0],
      ],
    );
  });

  test("an agent without holds does not fail the snapshot", async () => {
    await using fake = await FakeAgent.listen((agent, { stream }) => agent.send(T.ERROR, stream, UNSUPPORTED));
    const agent = await fake.connect();
    assert.equal(await holdProcesses(agent, patience()), false);
    assert.equal(await beFirst(agent, patience()), undefined);
    await goOn(agent, patience());
  });

  test("a guest that does not answer can be branched, but not frozen", async () => {
    await using fake = await FakeAgent.listen(() => undefined);
    const agent = await fake.connect();
    await assert.rejects(holdProcesses(agent, 20), { code: "AGENT_TIMEOUT" });
    assert.equal(await beFirst(agent, 20), undefined);
    await goOn(agent, 20);
  });
});

describe("the certificate", () => {
  const node: KernelFacts = { language: "node", version: "24", reseed: "memory", busy: false };
  const filled = ["node/random"];

  async function certify(resync: { held: boolean; uniqueNs: bigint } | undefined, stoppedAtMs?: number): Promise<ForkCertificate> {
    await using fake = await FakeAgent.listen((agent, frame) => {
      const now = BigInt(Date.now()) * 1_000_000n;
      if (frame.type === T.ATTACH) agent.started(frame.stream);
      if (frame.type === T.CLOCK) agent.send(T.RESULT, frame.stream, new Writer().i64(now).done());
      if (frame.type !== T.RESYNC) return;
      const answer = new Writer().i64(now).str("boot").u32(0);
      answer.list(filled, (writer, name) => void writer.str(name));
      if (resync) answer.u8(resync.held ? 1 : 0).u64(resync.uniqueNs);
      agent.send(T.RESULT, frame.stream, answer.done());
    });
    const vm = { pid: 0, watch: () => undefined, exited: new Promise(() => undefined), kill: async () => undefined };
    const dir = await mkdtemp(join(tmpdir(), "forkd-child-"));
    const child = { id: "sb-x", dir, vm, agent: fake.connection(), memory: { path: "", release: () => undefined } };
    const manifest = { agentKey: KEY.toString("hex"), env: {}, network: NO_NETWORK, mounts: [], kernels: [node], stoppedAtMs };
    const over = { snapshot: { manifest }, env: {}, network: new Network(), shares: [], startedAt: 0, onGone: () => undefined };
    const sandbox = await personalize(child as unknown as UnclaimedVm, over as unknown as Personality);
    await sandbox.kill();
    return sandbox.certificate;
  }

  test("says 0 and nothing shared where processes were held", async () => {
    const { ran_before_ms: ran, not_reseeded: shared } = await certify({ held: true, uniqueNs: 7_000_000n });
    assert.deepEqual([ran, shared], [0, []]);
  });

  test("says how long they ran in a fork of a branch, and whose OpenSSL is the same", async () => {
    const { ran_before_ms: ran, not_reseeded: shared } = await certify({ held: false, uniqueNs: 7_500_000n }, 5);
    assert.deepEqual([ran, shared], [2.5, ["node/openssl"]]);
  });

  test("says that it is not known with an agent of an earlier version", async () => {
    const { ran_before_ms: ran, not_reseeded: shared } = await certify(undefined, 5);
    assert.deepEqual([ran, shared], [null, ["node/openssl"]]);
  });
});
