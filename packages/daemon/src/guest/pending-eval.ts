// An eval that is under way, and who is told of it.

import { EvalOutput, type Display, type EvalResult } from "./eval-output.ts";
import type { EndMessage } from "./kernel-messages.ts";

export type EvalOptions = {
  timeoutMs?: number | undefined;
  /** variables of the environment, set for this code only */
  env?: Record<string, string> | undefined;
  onStdout?: ((text: Buffer) => void | Promise<void>) | undefined;
  onStderr?: ((text: Buffer) => void | Promise<void>) | undefined;
  /** called for what the code displays, when it does; the value of the code is the last */
  onDisplay?: ((display: Display) => void | Promise<void>) | undefined;
  /** it is part of the warm-up, and not counted */
  warm?: boolean | undefined;
  signal?: AbortSignal | undefined;
};

export class PendingEval {
  readonly id: number;
  readonly opts: EvalOptions;
  readonly #output = new EvalOutput();
  readonly #answer = Promise.withResolvers<EvalResult>();
  readonly #callbacks = Promise.withResolvers<never>();
  readonly #abandoned = Promise.withResolvers<void>();
  #isAbandoned = false;

  constructor(id: number, opts: EvalOptions) {
    this.id = id;
    this.opts = opts;
  }

  /** The kernel's answer, which comes also for an eval that nobody waits for any more */
  get answered(): Promise<EvalResult> {
    return this.#answer.promise;
  }

  /** The answer, unless a callback of the caller throws before */
  get outcome(): Promise<EvalResult> {
    return Promise.race([this.#answer.promise, this.#callbacks.promise]);
  }

  print(channel: "stdout" | "stderr", bytes: Buffer): void | Promise<void> {
    this.#output.add(channel, bytes);
    return this.#call(() => (channel === "stdout" ? this.opts.onStdout?.(bytes) : this.opts.onStderr?.(bytes)));
  }

  display(shown: Omit<Display, "isMain">, bytes: number, isMain = false): void | Promise<void> {
    const display = this.#output.display(shown, bytes, isMain);
    return display && this.#call(() => this.opts.onDisplay?.(display));
  }

  /** The value is displayed before the eval has ended, as everything else is */
  end(message: EndMessage, bytes: number): void | Promise<void> {
    const { data, omitted } = message.event === "result" ? message : {};
    const waiting = data && this.display({ data, omitted }, bytes, true);
    const answer = (): void => this.#answer.resolve(this.#output.result(message));
    return waiting ? waiting.then(answer) : answer();
  }

  /** Nobody waits for it any more: nobody is told, and what it prints waits for no callback that may never end */
  abandon(): void {
    this.#isAbandoned = true;
    this.#abandoned.resolve();
  }

  fail(error: Error): void {
    this.#answer.reject(error);
  }

  /** What a callback throws ends the wait for its eval, not the kernel */
  #call(callback: () => void | Promise<void>): void | Promise<void> {
    if (this.#isAbandoned) return;
    const failed = (error: unknown): void => {
      this.abandon();
      this.#callbacks.reject(error);
    };
    try {
      const waiting = callback();
      return waiting && Promise.race([waiting.catch(failed), this.#abandoned.promise]);
    } catch (error) {
      failed(error);
    }
  }
}
