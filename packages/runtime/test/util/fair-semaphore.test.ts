// The queues of a fair semaphore take turns.

import assert from "node:assert/strict";
import { test } from "node:test";
import { FairSemaphore } from "../../src/util/fair-semaphore.ts";

/** Starts works that wait for their end, and notes the order in which they begin */
function works(semaphore: FairSemaphore): {
  begun: string[];
  start: (key: string, name: string) => Promise<void>;
  endOne: () => Promise<void>;
} {
  const begun: string[] = [];
  const running: (() => void)[] = [];
  const start = async (key: string, name: string): Promise<void> =>
    semaphore.run(key, async () => {
      begun.push(name);
      await new Promise<void>((resolve) => running.push(resolve));
    });
  const endOne = async (): Promise<void> => {
    running.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { begun, start, endOne };
}

test("a key with many works delays others by one turn", async () => {
  const { begun, start, endOne } = works(new FairSemaphore(1));
  const all = ["a1", "a2", "a3", "a4"].map(async (name) => start("a", name));
  all.push(start("b", "b1"), start("c", "c1"), start("b", "b2"));
  for (let ended = 0; ended < 7; ended++) await endOne();
  await Promise.all(all);
  assert.deepEqual(begun, ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]);
});

test("places are used by any key, and returned after a failure", async () => {
  const semaphore = new FairSemaphore(2);
  await assert.rejects(
    semaphore.run("a", async () => Promise.reject(new Error("no"))),
    /no/,
  );
  const { begun, start, endOne } = works(semaphore);
  const all = ["a1", "a2", "a3"].map(async (name) => start("a", name));
  assert.deepEqual(begun, ["a1", "a2"]);
  for (let ended = 0; ended < 3; ended++) await endOne();
  await Promise.all(all);
  assert.deepEqual(begun, ["a1", "a2", "a3"]);
});

test("keys in use share the places; a key alone has all of them", async () => {
  const clock = { ms: 0 };
  const { begun, start, endOne } = works(new FairSemaphore(3, () => clock.ms));
  const all = [start("b", "b1")];
  await endOne();
  // the other key was in use a moment ago
  all.push(...["a1", "a2", "a3", "a4", "a5"].map(async (name) => start("a", name)));
  assert.deepEqual(begun, ["b1", "a1"]);
  all.push(start("b", "b2"));
  assert.deepEqual(begun, ["b1", "a1", "b2"], "it begins at once");
  await endOne();
  await endOne();
  assert.deepEqual(begun, ["b1", "a1", "b2", "a2"]);
  clock.ms += 1001;
  all.push(start("a", "a6"));
  await endOne();
  assert.deepEqual(begun.slice(4), ["a3", "a4", "a5"]);
  for (let ended = 0; ended < 5; ended++) await endOne();
  await Promise.all(all);
  assert.equal(begun.length, 8);
});
