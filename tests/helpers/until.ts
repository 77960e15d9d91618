// Polls for a condition, with a timeout that fits this machine.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { patience } from "./patience.ts";

const POLL_MS = 5;

/** Asks every `everyMs`; a question to a guest takes time of the guest */
export async function until(isSo: () => Promise<boolean> | boolean, everyMs = POLL_MS): Promise<void> {
  const withinMs = patience();
  const deadline = Date.now() + withinMs;
  while (!(await isSo())) {
    assert.ok(Date.now() < deadline, `not so within ${withinMs} ms: ${isSo.toString()}`);
    await sleep(everyMs);
  }
}
