// Collects the result of an eval. The guest makes all of it: it is bounded, and never interpreted.

import { GrowingBuffer } from "../../util/growing-buffer.ts";
import type { EndMessage } from "./messages.ts";

const MAX_OUTPUT = 8 * 1024 * 1024;
const MAX_DISPLAYS = 256;
const MAX_DISPLAY_BYTES = 16 * 1024 * 1024;

/** A status of 0 is not an error */
export type EvalError = { type: string; message: string; traceback: string; status: number };

export type Display = {
  /** whether it is the value of the last expression */
  isMain: boolean;
  /** by MIME type: text, base64, or JSON */
  data: Record<string, unknown>;
  /** types that were too large, with their sizes */
  omitted?: Record<string, number> | undefined;
};

export type EvalResult = {
  /** the last value as text; null when there is none */
  text: string | null;
  /** the last value, if JSON represents it exactly */
  json?: unknown;
  stdout: string;
  stderr: string;
  /** displays of the code, and its value when that has more than text */
  displays: Display[];
  /** output beyond 8 MiB, or displays beyond 256 or 16 MiB, were dropped here; the callbacks got all output */
  truncated: boolean;
  error: EvalError | null;
  /** number of evals of this interpreter, including this one */
  count: number;
};

export class EvalOutput {
  readonly #stdout = new GrowingBuffer();
  readonly #stderr = new GrowingBuffer();
  readonly #displays: Display[] = [];
  #displayBytes = 0;
  #truncated = false;

  add(channel: "stdout" | "stderr", bytes: Buffer): void {
    const [to, other] = channel === "stdout" ? [this.#stdout, this.#stderr] : [this.#stderr, this.#stdout];
    if (!to.add(bytes, MAX_OUTPUT - other.length)) this.#truncated = true;
  }

  /** Undefined when it does not fit */
  display({ data, omitted }: Omit<Display, "isMain">, bytes: number, isMain: boolean): Display | undefined {
    if (this.#displays.length >= MAX_DISPLAYS || this.#displayBytes + bytes > MAX_DISPLAY_BYTES) {
      this.#truncated = true;
      return undefined;
    }
    this.#displayBytes += bytes;
    const display = { isMain, data, ...(omitted ? { omitted } : {}) };
    this.#displays.push(display);
    return display;
  }

  result(end: EndMessage): EvalResult {
    const value = end.event === "result" ? end : undefined;
    return {
      text: value?.text ?? null,
      ...(value && "json" in value ? { json: value.json } : {}),
      stdout: this.#stdout.bytes().toString(),
      stderr: this.#stderr.bytes().toString(),
      displays: this.#displays,
      truncated: this.#truncated,
      error: errorOf(end),
      count: end.count,
    };
  }
}

function errorOf(end: EndMessage): EvalError | null {
  if (end.event === "result" || (end.event === "status" && end.status === 0)) return null;
  if (end.event === "status")
    return { type: "ExitStatus", message: `exit status ${end.status}`, traceback: `exit status ${end.status}`, status: end.status };
  const { type, message, traceback } = end;
  return { type, message, traceback, status: 1 };
}
