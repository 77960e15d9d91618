// A running eval and its callbacks.

import { EvalOutput, type Display, type EvalResult } from "./eval-output.ts";
import type { EndMessage } from "./messages.ts";
import type { EvalRequest } from "./language.ts";

export type EvalOptions = {
  timeoutMs?: number | undefined;
  /** environment variables for this code only */
  env?: Record<string, string> | undefined;
  onStdout?: ((text: Buffer) => void | Promise<void>) | undefined;
  onStderr?: ((text: Buffer) => void | Promise<void>) | undefined;
  /** called for each display; the value of the code is the last one */
  onDisplay?: ((display: Display) => void | Promise<void>) | undefined;
  /** part of the warm-up, not counted */
  warm?: boolean | undefined;
  signal?: AbortSignal | undefined;
};

export class PendingEval {
  readonly request: EvalRequest;
  readonly opts: EvalOptions;
  readonly #output = new EvalOutput();
  readonly #answer = Promise.withResolvers<EvalResult>();
  readonly #callbacks = Promise.withResolvers<never>();
  readonly #abandoned = Promise.withResolvers<void>();
  #isAbandoned = false;

  constructor(request: EvalRequest, opts: EvalOptions) {
    this.request = request;
    this.opts = opts;
  }

  get id(): number {
    return this.request.id;
  }

  /** The kernel's answer; it also arrives for an abandoned eval */
  get answered(): Promise<EvalResult> {
    return this.#answer.promise;
  }

  /** The answer, or the error that a callback threw before it */
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

  /** Displays the value before the eval ends, like every other display */
  end(message: EndMessage, bytes: number): void | Promise<void> {
    const { data, omitted } = message.event === "result" ? message : {};
    const waiting = data && this.display({ data, omitted }, bytes, true);
    const answer = (): void => this.#answer.resolve(this.#output.result(message));
    return waiting ? waiting.then(answer) : answer();
  }

  /** Detaches the callbacks, so that output does not wait for a callback that never settles */
  abandon(): void {
    this.#isAbandoned = true;
    this.#abandoned.resolve();
  }

  fail(error: Error): void {
    this.#answer.reject(error);
  }

  /** An error in a callback rejects its eval, and leaves the kernel usable */
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
