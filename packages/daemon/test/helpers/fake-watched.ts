// A watched process with scripted events, which records its input.

import type { WatchedProcess, WatchEvent } from "../../src/service/processes.ts";

export class FakeWatched implements WatchedProcess {
  readonly started = { id: 7, pid: 70, tag: null, terminal: false, stdout_offset: 100, stderr_offset: 0 };
  readonly told: unknown[] = [];
  readonly #dropped = new AbortController();
  readonly #queue: WatchEvent[] = [];
  /** thrown after all earlier events were read */
  failure: Error | undefined;
  /** error of writes to stdin */
  refusal: Error | undefined;
  isClosed = false;
  /** number of events that were read */
  read = 0;
  #wake: (() => void) | undefined;

  get dropped(): AbortSignal {
    return this.#dropped.signal;
  }

  put(...events: WatchEvent[]): void {
    this.#queue.push(...events);
    this.#wake?.();
  }

  fail(error: Error): void {
    this.failure = error;
    this.#wake?.();
  }

  drop(): void {
    this.#dropped.abort();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<WatchEvent> {
    try {
      for (;;) {
        const event = this.#queue.shift();
        if (event) {
          this.read++;
          yield event;
          if (event.type === "exit") return;
        } else if (this.failure) throw this.failure;
        else if (this.isClosed) return;
        else await new Promise<void>((resolve) => (this.#wake = resolve));
      }
    } finally {
      this.close();
    }
  }

  async write(bytes: Uint8Array): Promise<void> {
    if (this.refusal) throw this.refusal;
    this.told.push(Buffer.from(bytes).toString());
  }

  async closeStdin(): Promise<void> {
    this.told.push("close");
  }

  signal(request: object): void {
    this.told.push(request);
  }

  resize(size: object): void {
    this.told.push(size);
  }

  close(): void {
    this.isClosed = true;
    this.#wake?.();
  }
}

export function output(text: string | Uint8Array, offset: number, channel: "stdout" | "stderr" = "stdout"): WatchEvent {
  return { type: "data", channel, offset, bytes: Buffer.from(text) };
}

export const EXIT: WatchEvent = { type: "exit", exit: { exit_code: 0, signal: null, timed_out: false } };
