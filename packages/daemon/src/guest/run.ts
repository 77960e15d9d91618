// Runs a program in the guest to its end, within bounds that do not depend on the guest.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError } from "../errors.ts";
import { throwIfCancelled, within } from "./connection.ts";
import type { ProcessHub } from "./hub.ts";
import { TIMEOUT_GRACE_MS, type ExitStatus, type StartOptions } from "./program.ts";
import type { OutputChannel, Watch } from "./watch.ts";

/** how long an aborted program's end is waited for */
const KILL_WITHIN_MS = 2000;

export type RunOptions = Omit<StartOptions, "stdin"> & {
  stdin?: string | Uint8Array | undefined;
  onOutput?: ((channel: OutputChannel, bytes: Buffer) => void | Promise<void>) | undefined;
};

/** Rejects with CANCELLED at the signal, with AGENT_TIMEOUT when the guest does not keep the time-out; the program is then killed and forgotten */
export async function runProgram(hub: ProcessHub, argv: readonly string[], opts: RunOptions = {}): Promise<ExitStatus> {
  const { timeoutMs = 0, signal, stdin, onOutput } = opts;
  const began = performance.now();
  const process = await hub.start(argv, { ...opts, stdin: stdin === undefined ? "null" : "open" });
  const feeding = stdin === undefined ? undefined : feed(process, stdin);
  const exited = process.finish(onOutput);
  const limitMs = timeoutMs > 0 ? Math.max(1, timeoutMs + TIMEOUT_GRACE_MS - (performance.now() - began)) : 0;
  try {
    const status = await within(exited, limitMs, signal, () => {
      const late = `its agent did not tell the program's end within ${timeoutMs} ms and ${TIMEOUT_GRACE_MS} ms more`;
      return new ForkdError("AGENT_TIMEOUT", `The guest did not keep the time-out: ${late}.`);
    });
    throwIfCancelled(signal);
    return status;
  } catch (error) {
    killIfRunning(process);
    if (signal?.aborted) await Promise.race([settled(exited), sleep(KILL_WITHIN_MS, undefined, { ref: false })]);
    throw error;
  } finally {
    process.close();
    await feeding;
  }
}

function killIfRunning(process: Watch): void {
  try {
    process.signal("SIGKILL", "group");
  } catch (error) {
    // it has ended, or its agent is gone
    if (!(error instanceof ForkdError)) throw error;
  }
}

async function feed(process: Watch, stdin: string | Uint8Array): Promise<void> {
  try {
    await process.write(stdin);
    await process.closeStdin();
  } catch (error) {
    // a program need not read its input to the end
    if (!(error instanceof ForkdError)) throw error;
  }
}

async function settled(promise: Promise<unknown>): Promise<void> {
  await promise.catch(() => undefined); // how it ended no longer matters
}
