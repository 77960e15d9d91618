// One watcher of a process: its output in order, at the watcher's pace.

import { ForkdError } from "../../errors.ts";
import type { ExitStatus, Started, TerminalSize } from "./exec.ts";
import type { SharedProcess } from "./shared.ts";

export type OutputChannel = "stdout" | "stderr";

/** Position in the output: bytes since the start of the process */
export type Offsets = Record<OutputChannel, number>;

export type OutputEvent =
  | { type: "data"; channel: OutputChannel; offset: number; bytes: Buffer }
  /** requested output that is no longer kept; output continues at the offset */
  | { type: "lost"; channel: OutputChannel; offset: number; bytes: number }
  /** the last event */
  | { type: "exit"; status: ExitStatus };

export const CHANNELS: readonly OutputChannel[] = ["stdout", "stderr"];

/** Must be read to its end or closed: a watcher that does neither blocks the process, and is dropped after a while */
export class Watch implements AsyncIterableIterator<OutputEvent, undefined> {
  readonly #process: SharedProcess;
  readonly #stallMs: number;
  /** offsets of the next bytes */
  readonly #next: Offsets;
  readonly #queue: OutputEvent[] = [];
  #reader: PromiseWithResolvers<IteratorResult<OutputEvent, undefined>> | undefined;
  #taken: PromiseWithResolvers<void> | undefined;
  #stall: NodeJS.Timeout | undefined;
  readonly #dropped = new AbortController();
  #began: Offsets;
  #hasBegun = false;
  #failure: ForkdError | undefined;
  #over = false;

  constructor(process: SharedProcess, from: Offsets, stallMs: number) {
    this.#process = process;
    this.#next = { ...from };
    this.#began = { ...from };
    this.#stallMs = stallMs;
  }

  get id(): number {
    return this.#process.id;
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** Offsets of its first bytes */
  get began(): Offsets {
    return this.#began;
  }

  /** Aborted when it was dropped for consuming nothing */
  get dropped(): AbortSignal {
    return this.#dropped.signal;
  }

  /** The stream begins at these offsets; requested output before them is lost */
  begin(started: Pick<Started, OutputChannel>): void {
    for (const channel of CHANNELS) this.#skipTo(channel, started[channel]);
    if (!this.#hasBegun) this.#began = { ...this.#next };
    this.#hasBegun = true;
  }

  /** Takes its part of a piece of output; returns a promise when the sender must wait */
  data(channel: OutputChannel, offset: number, bytes: Buffer): Promise<void> | undefined {
    const had = Math.max(0, this.#next[channel] - offset);
    if (this.#over || had >= bytes.length) return undefined;
    this.#skipTo(channel, offset);
    this.#next[channel] = offset + bytes.length;
    return this.#put({ type: "data", channel, offset: offset + had, bytes: bytes.subarray(had) });
  }

  /** The process has ended, and all output was delivered */
  exit(status: ExitStatus): void {
    void this.#put({ type: "exit", status });
    this.#over = true;
  }

  /** Queued output is delivered first, then the failure */
  fail(error: ForkdError): void {
    if (this.#over) return;
    this.#failure = error;
    this.#over = true;
    if (this.#queue.length === 0) this.#answerReader();
  }

  async next(): Promise<IteratorResult<OutputEvent, undefined>> {
    const event = this.#queue.shift();
    if (event) {
      if (this.#queue.length === 0) this.#release();
      else this.#stall?.refresh();
      return { done: false, value: event };
    }
    if (this.#over) return this.#end();
    this.#reader ??= Promise.withResolvers();
    return this.#reader.promise;
  }

  async return(): Promise<IteratorResult<OutputEvent, undefined>> {
    this.close();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Reads it to its end */
  async finish(onOutput?: (channel: OutputChannel, bytes: Buffer) => void | Promise<void>): Promise<ExitStatus> {
    for await (const event of this) {
      if (event.type === "exit") return event.status;
      if (event.type === "data") await onOutput?.(event.channel, event.bytes);
    }
    throw new ForkdError("CANCELLED", "The process is no longer watched.");
  }

  async write(bytes: Uint8Array | string): Promise<void> {
    await this.#process.write(typeof bytes === "string" ? Buffer.from(bytes) : bytes);
  }

  async closeStdin(): Promise<void> {
    await this.#process.closeStdin();
  }

  signal(signal: NodeJS.Signals, scope: "process" | "group" = "group"): void {
    this.#process.signal(signal, scope);
  }

  resize(size: TerminalSize): void {
    this.#process.resize(size);
  }

  /** Stops watching; the process keeps running */
  close(): void {
    this.#queue.length = 0;
    this.#over = true;
    this.#release();
    this.#answerReader();
    this.#process.leave(this);
  }

  #skipTo(channel: OutputChannel, offset: number): void {
    const bytes = offset - this.#next[channel];
    if (bytes <= 0) return;
    this.#next[channel] = offset;
    void this.#put({ type: "lost", channel, offset, bytes });
  }

  #put(event: OutputEvent): Promise<void> | undefined {
    if (this.#over) return undefined;
    if (this.#reader) {
      this.#reader.resolve({ done: false, value: event });
      this.#reader = undefined;
      return undefined;
    }
    this.#queue.push(event);
    this.#taken ??= Promise.withResolvers();
    this.#stall ??= setTimeout(() => this.#drop(), this.#stallMs).unref();
    return this.#taken.promise;
  }

  /** The queue is empty: resolves the sender's wait */
  #release(): void {
    clearTimeout(this.#stall);
    this.#stall = undefined;
    this.#taken?.resolve();
    this.#taken = undefined;
  }

  #drop(): void {
    this.#queue.length = 0;
    this.fail(new ForkdError("CANCELLED", `The watcher of process ${this.id} took nothing for ${this.#stallMs / 1000} s and was dropped.`));
    this.#release();
    this.#process.leave(this);
    this.#dropped.abort();
  }

  #answerReader(): void {
    const reader = this.#reader;
    this.#reader = undefined;
    if (reader) this.#end().then(reader.resolve, reader.reject);
  }

  async #end(): Promise<IteratorResult<OutputEvent, undefined>> {
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure) throw failure;
    return { done: true, value: undefined };
  }
}
