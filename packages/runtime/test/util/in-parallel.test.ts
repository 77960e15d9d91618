import assert from "node:assert/strict";
import { test } from "node:test";
import { inParallel } from "../../src/util/in-parallel.ts";

test("all items are processed, with bounded concurrency", async () => {
  let running = 0;
  let most = 0;
  const done: number[] = [];
  await inParallel([1, 2, 3, 4, 5, 6, 7], 3, async (item) => {
    most = Math.max(most, ++running);
    await new Promise(setImmediate);
    running--;
    done.push(item);
  });
  assert.equal(most, 3);
  assert.deepEqual(
    done.toSorted((a, b) => a - b),
    [1, 2, 3, 4, 5, 6, 7],
  );
});

test("the first failure is rethrown; running items are cancelled, and no item starts after it", async () => {
  const begun: number[] = [];
  const ended: number[] = [];
  const work = async (item: number, signal: AbortSignal): Promise<void> => {
    begun.push(item);
    if (item === 2) throw new Error("two");
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    ended.push(item);
    throw new Error("ended");
  };
  await assert.rejects(inParallel([1, 2, 3], 2, work), { message: "two" });
  assert.deepEqual([begun, ended], [[1, 2], [1]]);
});

test("an aborted signal rejects with its reason", async () => {
  const work = async (): Promise<void> => assert.fail("begun");
  await assert.rejects(inParallel([1], 1, work, AbortSignal.abort()), { name: "AbortError" });
});
