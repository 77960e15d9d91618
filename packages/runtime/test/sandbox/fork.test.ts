// Retries of a child whose guest ended before it was ready, and waiting children that cannot be used.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ForkdError } from "../../src/errors.ts";
import { activate, despiteEnds, EndedAtStart, type Personality, type UnclaimedVm } from "../../src/sandbox/fork.ts";

/** Fails the given number of times, then returns the number of calls */
function failing(times: number, error: Error): () => Promise<number> {
  let calls = 0;
  return async () => {
    calls++;
    if (calls <= times) throw error;
    return calls;
  };
}

test("a child whose guest ended by itself is restored again, three times in total, and each end is reported", async () => {
  const ended = new EndedAtStart("FORK_FAILED", "The guest restarted.");
  const reported: string[] = [];
  const onEnd = (why: string): number => reported.push(why);
  assert.equal(await despiteEnds(failing(2, ended), onEnd), 3);
  assert.deepEqual(reported, ["The guest restarted.", "The guest restarted."]);
  await assert.rejects(despiteEnds(failing(3, ended), onEnd), ended);
});

test("another failure is not retried", async () => {
  const killed = new ForkdError("FORK_FAILED", "The VMM was killed.");
  await assert.rejects(
    despiteEnds(failing(1, killed), () => assert.fail("it was retried")),
    killed,
  );
});

test("a waiting child that cannot be used is ended, and the reason is reported", async () => {
  const calls: string[] = [];
  const call = (name: string) => (): void => void calls.push(name);
  const waiting = {
    dir: "/nonexistent/child",
    vm: { exited: new Promise(() => undefined), watch: call("watch"), resume: async () => undefined, kill: async () => call("kill")() },
    agent: {
      attach: () => {
        throw new ForkdError("FORK_FAILED", "The agent cannot be attached.");
      },
      close: call("close"),
    },
    memory: { release: call("release") },
    disk: null,
    group: undefined,
  } as unknown as UnclaimedVm;
  const over = { snapshot: { manifest: { agentKey: "" } } } as unknown as Personality;
  const reported: string[] = [];
  assert.equal(await activate(waiting, over, (why) => void reported.push(why)), undefined);
  assert.deepEqual(reported, ["The agent cannot be attached."]);
  assert.deepEqual(new Set(calls), new Set(["close", "kill", "release"]));
});
