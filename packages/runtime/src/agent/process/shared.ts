// One process of the guest, shared by watchers and writers over one stream of its agent.

import { constants } from "node:os";
import { ForkdError, messageOf } from "../../errors.ts";
import { Semaphore } from "../../util/semaphore.ts";
import { Writer } from "../../util/codec.ts";
import { awaitStart, awaitStarted, execPayload, readExit, type Started, type StartOptions, type TerminalSize } from "./exec.ts";
import { CHANNEL, FROM_NOW, T } from "../wire/protocol.ts";
import { CHANNELS, Watch, type Offsets, type OutputChannel } from "./output.ts";
import type { AgentConnection } from "../wire/connection.ts";
import type { AgentStream } from "../wire/stream.ts";

const OUTPUT_CHANNELS: { readonly [channel: number]: OutputChannel | undefined } = {
  [CHANNEL.stdout]: "stdout",
  [CHANNEL.stderr]: "stderr",
};

export type SharedOptions = {
  /** whether it has a terminal, whose input has no end */
  terminal: boolean;
  /** how long a watcher may consume nothing while output waits for it */
  stallMs: number;
  /** called when it has no users, or has ended */
  onOver: (process: SharedProcess) => void;
};

/**
 * The agent keeps the newest output and has one stream per process. Here the stream is shared: it begins at the oldest offset that a
 * watcher wants, and the other watchers skip what they already have. Nothing is buffered on this side.
 */
export class SharedProcess {
  readonly #agent: AgentConnection;
  readonly #opts: SharedOptions;
  readonly #watches = new Set<Watch>();
  /** current and upcoming users, without watchers */
  #holders = 0;
  /** opens streams in sequence */
  readonly #opening = new Semaphore(1);
  /** writes in sequence: two pieces that wait for credit must not interleave */
  readonly #writing = new Semaphore(1);
  #stream: AgentStream | undefined;
  #started: Started | undefined;
  /** offsets of the next bytes of the stream */
  #at: Offsets = { stdout: 0, stderr: 0 };
  #stdinOpen = true;
  #over: ForkdError | undefined;

  constructor(agent: AgentConnection, opts: SharedOptions) {
    this.#agent = agent;
    this.#opts = opts;
  }

  get id(): number {
    return this.#started?.id ?? 0;
  }

  get pid(): number {
    return this.#started?.pid ?? 0;
  }

  get isOver(): boolean {
    return this.#over !== undefined;
  }

  /** Starts a program, watched from its first byte */
  async start(argv: readonly string[], opts: StartOptions): Promise<Watch> {
    this.#stdinOpen = opts.stdin === "open" || this.#opts.terminal;
    const watch = this.#add(this.#at);
    const opened = this.#open(T.EXEC, execPayload(argv, opts));
    try {
      opened.begin(await awaitStart(opened.stream, argv, opts));
      return watch;
    } catch (error) {
      this.#end(asForkdError(error));
      throw error;
    }
  }

  /** Watches from these offsets, or from the oldest byte that is kept; they must not exceed the written output */
  async watch(id: number, from: Offsets): Promise<Watch> {
    this.#holders++;
    try {
      return await this.#opening.run(async () => {
        this.#refuseOver();
        const isBehind = CHANNELS.some((channel) => from[channel] < this.#at[channel]);
        const watch = this.#add(from);
        if (!this.#stream) await this.#attach(id, from);
        else if (isBehind) await this.#attach(id, oldest(from, this.#at));
        else watch.begin(from);
        return watch;
      });
    } finally {
      this.#release();
    }
  }

  /** Keeps a stream open during `work`, with or without watchers */
  async hold<V>(id: number, work: () => Promise<V> | V): Promise<V> {
    this.#holders++;
    try {
      await this.#opening.run(async () => {
        this.#refuseOver();
        if (!this.#stream) await this.#attach(id, undefined);
      });
      return await work();
    } finally {
      this.#release();
    }
  }

  leave(watch: Watch): void {
    this.#watches.delete(watch);
    this.#leaveIfIdle();
  }

  /** Rejects with STDIN_CLOSED or PROCESS_ENDED when stdin is not open */
  async write(bytes: Uint8Array): Promise<void> {
    await this.#writing.run(async () => {
      for (let at = 0; at < bytes.length;) {
        const stream = this.#live();
        if (!this.#stdinOpen) throw new ForkdError("STDIN_CLOSED", `Cannot write to process ${this.id}: its stdin is closed.`);
        try {
          at += await stream.writeSome(CHANNEL.stdin, bytes.subarray(at));
        } catch (error) {
          // unless another stream has replaced it; writing continues there
          if (this.#stream === stream) throw this.#over ?? error;
        }
      }
    });
  }

  /** Closes stdin after all pending writes; a terminal gets the end-of-file key, and accepts more input */
  async closeStdin(): Promise<void> {
    await this.#writing.run(async () => {
      this.#live().eof(CHANNEL.stdin);
      if (!this.#opts.terminal) this.#stdinOpen = false;
    });
  }

  signal(signal: NodeJS.Signals, scope: "process" | "group"): void {
    this.#live().signal(constants.signals[signal], scope);
  }

  resize({ rows, cols }: TerminalSize): void {
    this.#live().resize(rows, cols);
  }

  #add(from: Offsets): Watch {
    const watch = new Watch(this, from, this.#opts.stallMs);
    this.#watches.add(watch);
    return watch;
  }

  /** Without offsets: only new output */
  async #attach(id: number, from: Offsets | undefined): Promise<void> {
    const [stdout, stderr] = from ? [BigInt(from.stdout), BigInt(from.stderr)] : [FROM_NOW, FROM_NOW];
    const before = this.#stream;
    const opened = this.#open(T.ATTACH, new Writer().u64(BigInt(id)).str("").u64(stdout).u64(stderr).done());
    // The agent moves the process to the newer stream; output still on the older one is sent again.
    before?.lose(new ForkdError("CANCELLED", "Another stream has taken over the process."));
    try {
      opened.begin(await awaitStarted(opened.stream, `Cannot attach to process ${id} of the guest`));
    } catch (error) {
      opened.stream.cancel();
      this.#end(asForkdError(error));
      throw error;
    }
  }

  /** Output may arrive together with the answer, and waits until the answer was parsed */
  #open(type: number, payload: Buffer): { stream: AgentStream; begin: (started: Started) => void } {
    const begun = Promise.withResolvers<void>();
    const take = (channel: number, bytes: Buffer): Promise<void> | undefined => this.#take(stream, channel, bytes);
    let hasBegun = false;
    const stream = this.#agent.open(
      type,
      payload,
      (channel, bytes) => (hasBegun ? take(channel, bytes) : begun.promise.then(() => take(channel, bytes))),
      (channel) => {
        if (channel === CHANNEL.stdin && this.#stream === stream) this.#stdinOpen = false;
      },
    );
    this.#stream = stream;
    const begin = (started: Started): void => {
      this.#started = started;
      this.#at = { stdout: started.stdout, stderr: started.stderr };
      for (const watch of this.#watches) watch.begin(this.#at);
      hasBegun = true;
      begun.resolve();
      void this.#awaitEnd(stream);
    };
    return { stream, begin };
  }

  /** The process waits for the slowest watcher: its stream gets credit only then */
  #take(stream: AgentStream, channel: number, bytes: Buffer): Promise<void> | undefined {
    const name = OUTPUT_CHANNELS[channel];
    if (!name || this.#stream !== stream) return undefined;
    const offset = this.#at[name];
    this.#at[name] = offset + bytes.length;
    const waiting = [...this.#watches].flatMap((watch) => watch.data(name, offset, bytes) ?? []);
    return waiting.length === 0 ? undefined : Promise.all(waiting).then(() => undefined);
  }

  async #awaitEnd(stream: AgentStream): Promise<void> {
    try {
      const status = readExit(await stream.result());
      // Another stream may have replaced it; that one also delivers the end, after the output that it was opened for.
      if (this.#stream !== stream) return;
      for (const watch of this.#watches) watch.exit(status);
      this.#end(new ForkdError("PROCESS_ENDED", `Process ${this.id} has ended.`));
    } catch (error) {
      if (this.#stream === stream) this.#end(asForkdError(error));
    }
  }

  /** The stream has ended: watchers that have not seen the process's end get the reason */
  #end(why: ForkdError): void {
    if (this.#over) return;
    this.#over = why;
    for (const watch of this.#watches) watch.fail(why);
    this.#watches.clear();
    this.#opts.onOver(this);
  }

  #release(): void {
    this.#holders--;
    this.#leaveIfIdle();
  }

  #leaveIfIdle(): void {
    if (this.#over || this.#watches.size > 0 || this.#holders > 0) return;
    this.#over = new ForkdError("CANCELLED", `Process ${this.id} has no users left.`);
    this.#stream?.cancel();
    this.#opts.onOver(this);
  }

  #live(): AgentStream {
    this.#refuseOver();
    if (!this.#stream) throw new ForkdError("CANCELLED", "The process is not attached.");
    return this.#stream;
  }

  #refuseOver(): void {
    if (this.#over) throw this.#over;
  }
}

function oldest(a: Offsets, b: Offsets): Offsets {
  return { stdout: Math.min(a.stdout, b.stdout), stderr: Math.min(a.stderr, b.stderr) };
}

/** Other failures of an agent, such as a malformed answer, already are a ForkdError */
function asForkdError(error: unknown): ForkdError {
  return error instanceof ForkdError ? error : new ForkdError("INTERNAL", messageOf(error), { cause: error });
}
