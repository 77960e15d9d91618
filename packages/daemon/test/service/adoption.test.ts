// Start of a daemon whose VMMs do not answer.

import assert from "node:assert/strict";
import { test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { adoptAll } from "../../src/service/adoption.ts";
import { openStore } from "../../../../tests/helpers/restart.ts";
import { World } from "./helpers/world.ts";

const SANDBOXES = 20;
/** Time that the start waits for all VMMs together */
const WAIT_MS = 3000;

test("a start waits three seconds in total for VMMs that do not answer, for any number of them", { timeout: patience() }, async () => {
  await using world = await World.make();
  await world.create("py");
  for (let at = 0; at < SANDBOXES; at++) await world.fork("py");
  world.store[Symbol.dispose]();
  let asked = 0;
  const adopt = async (): Promise<never> => {
    asked++;
    return new Promise(() => undefined);
  };
  using store = openStore(world.home, { adopt });
  const began = performance.now();
  const adopted = await adoptAll(store.core, store.registry);
  const tookMs = performance.now() - began;
  assert.deepEqual(adopted, { adopted: 0, lost: 0, late: SANDBOXES, ended: 0 });
  assert.equal(asked, SANDBOXES, "hanging VMMs blocked the others");
  assert.ok(tookMs < WAIT_MS + patience(0.2), `it took ${tookMs} ms`);
});
