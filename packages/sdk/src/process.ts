// Handle on one running process.

import { ForkdError } from "./errors.ts";
import { StdinQueue } from "./stdin-queue.ts";
import type { Controller } from "./controller.ts";
import type { FileContent } from "./call-options.ts";
import type { SignalOptions } from "./options.gen.ts";
import type { OutputHandlers, SignalName } from "./options.ts";
import type { ProcessStreamEvent } from "./process-events.ts";
import type { ProcessExit, TerminalSize } from "./schema.gen.ts";

/** Output of a process, or a gap of output that is no longer retained */
export type ProcessOutput =
  | {
      type: "stdout" | "stderr";
      /** Offset in the whole output */
      offset: number;
      bytes: Uint8Array;
      /** The bytes as UTF-8; a character that is split is returned with its second part */
      text: string;
    }
  | { type: "lost"; channel: "stdout" | "stderr"; bytes: number };

/** How a process is found and watched */
export type ProcessSource = {
  controller: Controller;
  sandbox: string;
  events: AsyncGenerator<ProcessStreamEvent>;
  started: Extract<ProcessStreamEvent, { type: "started" }>;
  /** Ends the watch */
  stop: AbortController;
};

/**
 * A process in a sandbox. Its output is read by {@link output}, by the handlers it was started with, or by {@link wait}, which
 * discards it. Without a reader the process blocks, and after 30 seconds it continues without this handle. The handle then resumes where
 * it stopped, and reports output that was dropped meanwhile as lost.
 *
 * @example
 * ```ts
 * const build = await sandbox.processes.start(["make"], { onStdout: (text) => console.log(text) });
 * const { exit_code } = await build.wait();
 * ```
 */
export class Process {
  /** Process id in the API; the same in forks of the sandbox */
  readonly id: number;
  /** Process id inside the guest */
  readonly pid: number;
  readonly tag: string | null;
  readonly terminal: boolean;
  private readonly source: ProcessSource;
  private readonly stdin: StdinQueue;
  private readonly exit: Promise<ProcessExit>;
  private settle!: { resolve: (exit: ProcessExit) => void; reject: (error: unknown) => void };
  private isRead = false;
  private place: string;

  constructor(source: ProcessSource, handlers: OutputHandlers = {}) {
    this.source = source;
    const { id, pid, tag, terminal, cursor } = source.started;
    this.id = id;
    this.pid = pid;
    this.tag = tag;
    this.terminal = terminal;
    this.place = cursor;
    const { controller, sandbox } = source;
    this.stdin = new StdinQueue((content, close) => controller.writeStdin(sandbox, String(id), content, { close, timeoutMs: 0 }));
    this.exit = new Promise((resolve, reject) => (this.settle = { resolve, reject }));
    this.exit.catch(() => undefined); // wait() rejects with it
    if (handlers.onStdout ?? handlers.onStderr ?? handlers.onLost) void this.read(handlers);
  }

  /** Position after the output read so far; another handle can continue from it */
  get cursor(): string {
    return this.place;
  }

  /** The exit of the process. Unread output is discarded. */
  async wait(): Promise<ProcessExit> {
    if (!this.isRead) void this.read({});
    return await this.exit;
  }

  /** Output until the process ends. The process blocks while this is not read. Only one iteration is allowed. */
  async *output(): AsyncGenerator<ProcessOutput> {
    if (this.isRead)
      throw new ForkdError("BAD_REQUEST", `The output of process ${this.id} is read already.`, { hint: "Attach once more." });
    this.isRead = true;
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    try {
      for await (const event of this.source.events) {
        this.place = event.cursor;
        if (event.type === "exit") {
          const { exit_code, signal, timed_out } = event;
          this.settle.resolve({ exit_code, signal, timed_out });
          return;
        }
        if (event.type === "lost") {
          decoders[event.channel] = new TextDecoder();
          yield { type: "lost", channel: event.channel, bytes: event.bytes };
        } else if (event.type !== "started") {
          const text = decoders[event.type].decode(event.bytes, { stream: true });
          yield { type: event.type, offset: event.offset, bytes: event.bytes, text };
        }
      }
    } catch (error) {
      this.settle.reject(error);
      if (!this.source.stop.signal.aborted) throw error;
    } finally {
      this.detach();
    }
  }

  /** Writes to stdin; resolves when the guest has accepted it. Writes keep the order of the calls. */
  async write(content: FileContent): Promise<void> {
    await this.stdin.write(content);
  }

  /** Closes stdin; for a terminal, sends the end-of-file key. */
  async closeStdin(): Promise<void> {
    await this.stdin.close();
  }

  /** Sends a signal to the process group. */
  async kill(signal: SignalName = "SIGTERM", opts: SignalOptions = {}): Promise<void> {
    await this.source.controller.signalProcess(this.source.sandbox, String(this.id), signal, opts);
  }

  /** Sets the size of the terminal. */
  async resize(size: TerminalSize): Promise<void> {
    await this.source.controller.resizeProcess(this.source.sandbox, String(this.id), size);
  }

  /** Stops watching; the process continues. */
  detach(): void {
    const error = new ForkdError("CANCELLED", `Process ${this.id} is no longer watched.`, { hint: "Attach to it again." });
    this.settle.reject(error);
    this.source.stop.abort(error);
    // closes a connection that is not being read; one that is being read ends with the signal
    this.source.events.return(undefined).catch(() => undefined);
  }

  /** {@link detach}, for `await using` */
  async [Symbol.asyncDispose](): Promise<void> {
    this.detach();
  }

  private async read({ onStdout, onStderr, onLost }: OutputHandlers): Promise<void> {
    try {
      for await (const event of this.output()) {
        try {
          if (event.type === "lost") await onLost?.({ channel: event.channel, bytes: event.bytes });
          else if (event.text !== "") await (event.type === "stdout" ? onStdout : onStderr)?.(event.text);
        } catch (error) {
          this.settle.reject(error);
          return;
        }
      }
    } catch {
      // output() has already rejected wait() with it
    }
  }
}
