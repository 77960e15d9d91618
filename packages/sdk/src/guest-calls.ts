// Calls into a sandbox: programs, code, logs.

import { SandboxCalls } from "./sandbox-calls.ts";
import { textOf } from "./streams.ts";
import { path, split } from "./wire.ts";
import type { CallOptions, EvalOptions, ExecOptions, LogsOptions } from "./options.ts";
import type * as wire from "./schema.gen.ts";

/** The daemon's own time-out for programs and code */
const DEFAULT_SECS = 30;
/** For the way there and back, beyond the time the guest is given */
const MARGIN_MS = 10_000;

export class GuestCalls extends SandboxCalls {
  /** One round trip to the agent inside the guest. */
  async pingSandbox(id: string, opts: CallOptions = {}): Promise<wire.Pong> {
    return await this.client.json("POST", path`/v1/sandboxes/${id}/ping`, { ...opts, canRepeat: true });
  }

  /**
   * Runs a program to its end; no shell. An exit code other than 0 is a result, not an error. Never repeated by itself, unless
   * `idempotencyKey` is given.
   *
   * @throws InvalidRequestError when the program could not be started
   * @example
   * ```ts
   * const { stdout, exit_code } = await controller.execCommand(id, ["uname", "-a"], { timeoutSecs: 5 });
   * ```
   */
  async execCommand(id: string, args: string[], opts: ExecOptions = {}): Promise<wire.ExecResult> {
    const { fields, call } = split(opts);
    const json: wire.Exec = { args, ...fields };
    return await this.client.json("POST", path`/v1/sandboxes/${id}/exec`, { ...call, timeoutMs: callTimeoutMs(opts), json });
  }

  /**
   * Runs code in a warm interpreter, which keeps its state. Code that raises is a result with `error` set, not an error. Never
   * repeated by itself, unless `idempotencyKey` is given.
   *
   * @throws TimeoutError after `timeoutSecs`; the interpreter stays usable
   */
  async evalCode(id: string, code: string, opts: EvalOptions = {}): Promise<wire.EvalResult> {
    const { fields, call } = split(opts);
    const json: wire.Eval = { code, ...fields };
    return await this.client.json("POST", path`/v1/sandboxes/${id}/eval`, { ...call, timeoutMs: callTimeoutMs(opts), json });
  }

  /**
   * What the guest's console, the agent or the VMM wrote, as text that comes bit by bit. With `follow` it goes on until the signal
   * aborts, which ends the iteration without an error.
   */
  async *logs(id: string, opts: LogsOptions = {}): AsyncGenerator<string> {
    const { signal, timeoutMs, ...query } = opts;
    try {
      const call = { signal, timeoutMs, query };
      yield* textOf(this.client.stream("GET", path`/v1/sandboxes/${id}/logs`, call, { isEndless: opts.follow === true }));
    } catch (error) {
      if (opts.follow === true && signal?.aborted === true) return;
      throw error;
    }
  }
}

function callTimeoutMs(opts: { timeoutMs?: number | undefined; timeoutSecs?: number | undefined }): number {
  return opts.timeoutMs ?? (opts.timeoutSecs ?? DEFAULT_SECS) * 1000 + MARGIN_MS;
}
