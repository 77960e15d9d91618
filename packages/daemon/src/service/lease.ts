// Lease of a running sandbox: required for any use, and suspends the idle timeout while held.

import { ForkdError, type ErrorCode } from "@forkd/runtime/errors";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import type { Entry } from "./registry.ts";

/** Errors that the end of the VM causes in work in progress */
const LOST_WITH_ITS_VM = new Set<ErrorCode>(["AGENT_LOST", "BRANCH_FAILED"]);

export class Lease {
  readonly sandbox: Sandbox;
  readonly entry: Entry;
  #isHeld: boolean;

  /** @param isUse false: the work only observes the sandbox and does not reset its idle time */
  constructor(entry: Entry, sandbox: Sandbox, isUse: boolean) {
    this.entry = entry;
    this.sandbox = sandbox;
    this.#isHeld = isUse;
    if (isUse) entry.uses++;
  }

  /** If the sandbox has ended, returns that as the cause instead of the agent channel's error */
  explain(error: unknown): unknown {
    const isGone = !this.sandbox.alive || this.entry.removing !== undefined;
    if (!isGone || !(error instanceof ForkdError) || !LOST_WITH_ITS_VM.has(error.code)) return error;
    return new ForkdError("VMM_EXITED", `Sandbox ${this.sandbox.id} has ended.`, { cause: error });
  }

  /** The idle time starts when the last lease is released */
  release(): void {
    if (!this.#isHeld) return;
    this.#isHeld = false;
    this.entry.uses--;
    this.entry.lastActive = Date.now();
  }
}
