// Waits for what will come, and fails when it does not.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

const PATIENCE_MS = 60_000;
const POLL_MS = 5;

export async function until(isSo: () => Promise<boolean> | boolean): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await isSo())) {
    assert.ok(Date.now() < deadline, `it did not come to that: ${isSo.toString()}`);
    await sleep(POLL_MS);
  }
}
