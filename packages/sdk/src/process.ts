// One live process as an object.

import { ForkdError } from "./errors.ts";
import { StdinQueue } from "./stdin-queue.ts";
import type { Controller } from "./controller.ts";
import type { FileContent } from "./file-options.ts";
import type { OutputHandlers, SignalName, SignalOptions } from "./options.ts";
import type { ProcessStreamEvent } from "./process-events.ts";
import type { ProcessExit, TerminalSize } from "./schema.gen.ts";

/** What a process printed, or what of it is no longer kept */
export type ProcessOutput =
  | {
      type: "stdout" | "stderr";
      /** In the whole of its output */
      offset: number;
      bytes: Uint8Array;
      /** The bytes as UTF-8; a character that is cut in two comes with its second part */
      text: string;
    }
  | { type: "lost"; channel: "stdout" | "stderr"; bytes: number };

/** How a process is found and watched */
export type ProcessSource = {
  controller: Controller;
  sandbox: string;
  events: AsyncGenerator<ProcessStreamEvent>;
  started: Extract<ProcessStreamEvent, { type: "started" }>;
  /** Ends the watching */
  stop: AbortController;
};

/**
 * A process in a sandbox. Its output is read by {@link output}, by the handlers it was started with, or by {@link wait}, which
 * lets it go by. While nobody reads, the process waits, and after 30 seconds it goes on without this handle, which comes back
 * where it left off: what was no longer kept by then is told as lost.
 *
 * @example
 * ```ts
 * const build = await sandbox.processes.start(["make"], { onStdout: (text) => console.log(text) });
 * const { exit_code } = await build.wait();
 * ```
 */
export class Process {
  /** The same in forks of the sandbox */
  readonly id: number;
  /** Inside the guest */
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
    this.exit.catch(() => undefined); // whoever waits hears of it
    if (handlers.onStdout ?? handlers.onStderr ?? handlers.onLost) void this.read(handlers);
  }

  /** The place behind what was read so far: another handle can go on from there */
  get cursor(): string {
    return this.place;
  }

  /** How it ended. Output that nobody reads goes by. */
  async wait(): Promise<ProcessExit> {
    if (!this.isRead) void this.read({});
    return await this.exit;
  }

  /** What it prints, until it ends; the process waits while this is not read. Only one may read. */
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

  /** Writes to its stdin; resolves when it was handed over. What is written comes in the order of the calls. */
  async write(content: FileContent): Promise<void> {
    await this.stdin.write(content);
  }

  /** No more will come; a terminal gets the key that says so. */
  async closeStdin(): Promise<void> {
    await this.stdin.close();
  }

  /** Sends a signal to it and its process group. */
  async kill(signal: SignalName = "SIGTERM", opts: SignalOptions = {}): Promise<void> {
    await this.source.controller.signalProcess(this.source.sandbox, String(this.id), signal, opts);
  }

  /** Tells it the size of its terminal. */
  async resize(size: TerminalSize): Promise<void> {
    await this.source.controller.resizeProcess(this.source.sandbox, String(this.id), size);
  }

  /** Stops watching; the process goes on. */
  detach(): void {
    const error = new ForkdError("CANCELLED", `Process ${this.id} is no longer watched.`, { hint: "Attach to it again." });
    this.settle.reject(error);
    this.source.stop.abort(error);
    // lets go of a connection that nobody was reading; one that is being read ends with the signal
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
      // output() has told it to whoever waits
    }
  }
}
