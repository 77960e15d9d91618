import assert from "node:assert/strict";
import { test } from "node:test";
import { ClockKeeper } from "../../src/sandbox/clock-keeper.ts";

test("the clocks of all sandboxes are set every ten minutes, until it is closed", (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const set: string[] = [];
  const sandbox = (name: string): { keepClock: () => Promise<void> } => ({ keepClock: async () => void set.push(name) });
  const live = [sandbox("a")];
  const keeper = new ClockKeeper(() => live);
  t.mock.timers.tick(599_999);
  assert.deepEqual(set, []);
  t.mock.timers.tick(1);
  assert.deepEqual(set, ["a"]);
  live.push(sandbox("b"));
  t.mock.timers.tick(600_000);
  assert.deepEqual(set, ["a", "a", "b"]);
  keeper.close();
  t.mock.timers.tick(6_000_000);
  assert.equal(set.length, 3);
});
