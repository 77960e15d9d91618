// Calls into a sandbox: programs, code, logs.

import { streamedEval } from "./eval-stream.ts";
import { SandboxCalls } from "./sandbox-calls.ts";
import { textOf } from "./streams.ts";
import { path, split } from "./wire.ts";
import type { CreateContextOptions, EvalHandlers, EvalOptions } from "./eval-options.ts";
import type { CallOptions, ExecOptions, LogsOptions } from "./options.ts";
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
   * repeated by itself, unless `idempotencyKey` is given. With a callback, output and results come as they are made.
   *
   * @throws TimeoutError after `timeoutSecs`; the interpreter stays usable
   */
  async evalCode(id: string, code: string, opts: EvalOptions & EvalHandlers = {}): Promise<wire.EvalResult> {
    const { onStdout, onStderr, onResult, context, ...rest } = opts;
    const { fields, call } = split(rest);
    const json: wire.Eval = { code, ...fields, ...(context === undefined ? {} : { context: contextId(context) }) };
    const asked = { ...call, timeoutMs: callTimeoutMs(opts), json };
    if (!onStdout && !onStderr && !onResult) return await this.client.json("POST", path`/v1/sandboxes/${id}/eval`, asked);
    return await streamedEval(this.client, path`/v1/sandboxes/${id}/eval/stream`, asked, { onStdout, onStderr, onResult });
  }

  /** Interpreters of a sandbox, each with its own state. */
  async listContexts(id: string, opts: CallOptions = {}): Promise<wire.Context[]> {
    return await this.client.json("GET", path`/v1/sandboxes/${id}/contexts`, opts);
  }

  /**
   * Starts another interpreter, with a state of its own.
   *
   * @throws InvalidRequestError when the image does not have the language
   */
  async createContext(id: string, language: wire.Language, opts: CreateContextOptions = {}): Promise<wire.Context> {
    const { fields, call } = split(opts);
    const json: wire.CreateContext = { language, ...fields };
    return await this.client.json("POST", path`/v1/sandboxes/${id}/contexts`, { ...call, json });
  }

  /** Ends an interpreter and what it runs. */
  async deleteContext(id: string, context: string, opts: CallOptions = {}): Promise<void> {
    await this.client.empty("DELETE", path`/v1/sandboxes/${id}/contexts/${context}`, opts);
  }

  /** Puts a fresh interpreter in its place, with nothing of its state. */
  async restartContext(id: string, context: string, opts: CallOptions = {}): Promise<wire.Context> {
    return await this.client.json("POST", path`/v1/sandboxes/${id}/contexts/${context}/restart`, opts);
  }

  /** Interrupts the code that it runs; its state stays. */
  async interruptContext(id: string, context: string, opts: CallOptions = {}): Promise<void> {
    await this.client.empty("POST", path`/v1/sandboxes/${id}/contexts/${context}/interrupt`, opts);
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

function contextId(context: string | { id: string }): string {
  return typeof context === "string" ? context : context.id;
}

function callTimeoutMs(opts: { timeoutMs?: number | undefined; timeoutSecs?: number | undefined }): number {
  return opts.timeoutMs ?? (opts.timeoutSecs ?? DEFAULT_SECS) * 1000 + MARGIN_MS;
}
