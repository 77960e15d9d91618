// Runs a program in the guest to its end, with time limits that do not depend on the guest.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError } from "../../errors.ts";
import { throwIfCancelled, within } from "../../util/within.ts";
import type { ProcessRegistry } from "./registry.ts";
import { TIMEOUT_GRACE_MS, type ExitStatus, type StartOptions } from "./exec.ts";
import type { OutputChannel, Watch } from "./output.ts";

/** Wait for the end of an aborted program */
const KILL_WITHIN_MS = 2000;

export type RunOptions = Omit<StartOptions, "stdin"> & {
  stdin?: string | Uint8Array | undefined;
  onOutput?: ((channel: OutputChannel, bytes: Buffer) => void | Promise<void>) | undefined;
};

/** Rejects with CANCELLED at the signal, with AGENT_TIMEOUT when the guest exceeds the time-out; the program is then killed */
export async function runProgram(hub: ProcessRegistry, argv: readonly string[], opts: RunOptions = {}): Promise<ExitStatus> {
  const { timeoutMs = 0, signal, stdin, onOutput } = opts;
  const began = performance.now();
  const process = await hub.start(argv, { ...opts, stdin: stdin === undefined ? "null" : "open" });
  const feeding = stdin === undefined ? undefined : feed(process, stdin);
  const exited = process.finish(onOutput);
  const limitMs = timeoutMs > 0 ? Math.max(1, timeoutMs + TIMEOUT_GRACE_MS - (performance.now() - began)) : 0;
  try {
    const status = await within(exited, limitMs, signal, () => {
      const late = `its agent did not report the end of the program within ${timeoutMs} ms and ${TIMEOUT_GRACE_MS} ms more`;
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
    // it has ended, or the connection to the agent is closed
    if (!(error instanceof ForkdError)) throw error;
  }
}

async function feed(process: Watch, stdin: string | Uint8Array): Promise<void> {
  try {
    await process.write(stdin);
    await process.closeStdin();
  } catch (error) {
    // a program may exit without reading its input
    if (!(error instanceof ForkdError)) throw error;
  }
}

async function settled(promise: Promise<unknown>): Promise<void> {
  await promise.catch(() => undefined); // its outcome is no longer needed
}
