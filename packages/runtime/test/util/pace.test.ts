// Senders of very many messages are read slowly, and a disconnected sender leaves nothing waiting.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Pace } from "../../src/util/pace.ts";

type Held = { pace: Pace; holds: number; releases: number };

function sender(): Held {
  const held: Held = {
    holds: 0,
    releases: 0,
    pace: new Pace({
      perMs: 10,
      burst: 100,
      hold: () => {
        held.holds++;
        return { [Symbol.dispose]: () => void held.releases++ };
      },
    }),
  };
  return held;
}

test("a sender rests for as long as its messages and the other resting senders take", (t) => {
  t.mock.method(performance, "now", () => 1_000_000);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const [one, two] = [sender(), sender()];
  one.pace.count(100);
  assert.equal(one.holds, 0);
  one.pace.count(100);
  two.pace.count(200);
  one.pace.count(1);
  assert.deepEqual([one.holds, two.holds], [1, 1]);
  t.mock.timers.tick(20);
  assert.deepEqual([one.releases, two.releases], [1, 0]);
  t.mock.timers.tick(20);
  assert.deepEqual([one.releases, two.releases], [1, 1]);
});

test("a rest ends with its sender, once", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const gone = sender();
  gone.pace.count(1000);
  gone.pace.close();
  gone.pace.close();
  t.mock.timers.tick(1000);
  assert.deepEqual([gone.holds, gone.releases], [1, 1]);
});
