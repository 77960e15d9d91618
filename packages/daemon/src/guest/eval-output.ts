// What an eval gives back, gathered while it runs. All of it is made by the guest: bounded, and never interpreted.

import { GrowingBuffer } from "./growing-buffer.ts";
import type { EndMessage } from "./kernel-messages.ts";

const MAX_OUTPUT = 8 * 1024 * 1024;
const MAX_DISPLAYS = 256;
const MAX_DISPLAY_BYTES = 16 * 1024 * 1024;

/** A status of 0 is no error */
export type EvalError = { type: string; message: string; traceback: string; status: number };

export type Display = {
  /** it is the value of the code's last expression */
  isMain: boolean;
  /** by MIME type: text, base64, or JSON */
  data: Record<string, unknown>;
  /** what was too large, and how large */
  omitted?: Record<string, number> | undefined;
};

export type EvalResult = {
  /** the last value as text; null when there is none */
  text: string | null;
  /** the last value where JSON can carry it unchanged */
  json?: unknown;
  stdout: string;
  stderr: string;
  /** what the code displayed and, when it shows more than text, its value */
  displays: Display[];
  /** output beyond 8 MiB, or displays beyond 256 or 16 MiB, were dropped here; the callbacks got all of the output */
  truncated: boolean;
  error: EvalError | null;
  /** how many its interpreter has run, with this one */
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

  /** Undefined when there is no room for it */
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
