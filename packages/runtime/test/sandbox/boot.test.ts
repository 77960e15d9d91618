// Boot retries: after a crash under TCG, but not after other errors.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ForkdError } from "../../src/errors.ts";
import { CrashedAtBoot, despiteCrashes } from "../../src/sandbox/boot.ts";

/** Fails the given number of times, then returns the number of calls */
function failing(times: number, error: Error): () => Promise<number> {
  let calls = 0;
  return async () => {
    calls++;
    if (calls <= times) throw error;
    return calls;
  };
}

test("a guest kernel that crashes is booted again, three times in total", async () => {
  const crash = new CrashedAtBoot("BOOT_FAILED", "The guest kernel crashed.");
  assert.equal(await despiteCrashes(failing(2, crash)), 3);
  await assert.rejects(despiteCrashes(failing(3, crash)), crash);
});

test("another failure is not retried", async () => {
  const refused = new ForkdError("BOOT_FAILED", "The image has no init.");
  await assert.rejects(despiteCrashes(failing(1, refused)), refused);
});
