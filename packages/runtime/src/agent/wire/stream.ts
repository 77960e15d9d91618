// One stream of an agent connection: flow control in both directions, frames in order, exactly one end.

import { ForkdError, messageOf, type ErrorCode } from "../../errors.ts";
import { Backlog, type Waiting } from "./backlog.ts";
import { CodecError, Reader, Writer } from "../../util/codec.ts";
import { CHANNEL, MAX_PAYLOAD, T, WINDOW, type Channels, type Frame } from "./protocol.ts";

const CREDIT_STEP = 65536;

export type StreamOptions = {
  /** channels on which the agent may send; each has its own window, so an unused one is refused */
  channels: Channels;
  send: (type: number, payload: Buffer) => void;
  /** DATA: the bytes are not copied, so the caller must not change them */
  sendData: (channel: number, bytes: Uint8Array) => void;
  /** a promise to wait for before more is sent, if any */
  drained: () => Promise<void> | undefined;
  /** consumer of DATA; credit is returned when it returns, or when its promise settles */
  onData: ((channel: number, bytes: Buffer) => void | Promise<void>) | undefined;
  /** counts a piece that the consumer got; returns a promise to wait for before the next, if any */
  paced?: (() => Promise<void> | undefined) | undefined;
  /** called after the last DATA of a channel was consumed */
  onEof?: ((channel: number) => void) | undefined;
  /** stdin waits until the agent gives credit */
  awaitsStdin?: boolean | undefined;
  onEnd: () => void;
  /** initial window of a channel, in each direction */
  window?: number;
};

/** An ERROR frame: `errno` is the agent's own code */
export class AgentError extends ForkdError {
  readonly errno: string;

  constructor(errno: string, message: string, code: ErrorCode = "BAD_REQUEST") {
    super(code, message);
    this.errno = errno;
  }
}

export class AgentStream {
  readonly #opts: StreamOptions;
  /** default window of both sides */
  readonly #window: number;
  #creditStep: number;
  readonly #end = Promise.withResolvers<Frame>();
  readonly #started = Promise.withResolvers<Reader>();
  /** bytes we may still send, per channel */
  readonly #credit = new Map<number, number>();
  readonly #creditWaiters: (() => void)[] = [];
  /** bytes consumed and not yet returned as credit, per channel */
  readonly #owed = new Map<number, number>();
  /** bytes the agent may still send, per channel */
  readonly #allowed = new Map<number, number>();
  /** channels that the agent has ended */
  readonly #ended = new Set<number>();
  /** frames that arrived while the consumer was busy */
  readonly #backlog = new Backlog();
  #consumed: Promise<void> = Promise.resolve();
  #busy = false;
  /** queued frames are discarded */
  #isLost = false;
  #hasStarted = false;
  #over = false;
  #consumerFailure: ForkdError | undefined;

  constructor(opts: StreamOptions) {
    this.#opts = opts;
    this.#window = opts.window ?? WINDOW;
    this.#creditStep = Math.min(CREDIT_STEP, this.#window / 2);
    if (opts.awaitsStdin) this.#credit.set(CHANNEL.stdin, 0);
    this.#end.promise.catch(() => undefined); // read through result(), exit() or started()
    this.#started.promise.catch(() => undefined);
  }

  /** Whether the stream has ended */
  get over(): boolean {
    return this.#over;
  }

  /** The last frame (RESULT or EXIT), after all DATA before it was consumed */
  async end(): Promise<Frame> {
    return this.#end.promise;
  }

  async result(): Promise<Reader> {
    return new Reader((await this.#end.promise).payload);
  }

  /** The STARTED frame of a process stream, or the OPENED frame of a connection */
  async started(): Promise<Reader> {
    return this.#started.promise;
  }

  /** Sends bytes as the peer's credit allows; resolves when all are sent. The caller must not change them before */
  async write(channel: number, bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length;) at += await this.writeSome(channel, bytes.subarray(at));
  }

  /** Sends as much as the peer's credit allows; returns how much. 0: it waited, and the caller may check its state */
  async writeSome(channel: number, bytes: Uint8Array): Promise<number> {
    if (this.#over) throw await this.#endError();
    const credit = this.#creditOf(channel);
    if (credit === 0) {
      await new Promise<void>((resolve) => void this.#creditWaiters.push(resolve));
      return 0;
    }
    // Checked before the send, not after it: streams that open and close would each leave a piece behind.
    const full = this.#opts.drained();
    if (full) {
      await full;
      return 0;
    }
    const size = Math.min(credit, bytes.length, MAX_PAYLOAD - 1);
    this.#credit.set(channel, credit - size);
    this.#opts.sendData(channel, bytes.subarray(0, size));
    return size;
  }

  eof(channel: number): void {
    if (!this.#over) this.#opts.send(T.EOF, Buffer.of(channel));
  }

  signal(signal: number, scope: "process" | "group"): void {
    if (!this.#over)
      this.#opts.send(
        T.SIGNAL,
        new Writer()
          .u32(signal)
          .u8(scope === "group" ? 1 : 0)
          .done(),
      );
  }

  get isOver(): boolean {
    return this.#over;
  }

  /** Gives the agent the default window on this channel */
  widen(channel: number): void {
    const more = WINDOW - this.#window;
    if (this.#over || more === 0) return;
    this.#creditStep = CREDIT_STEP;
    this.#allowed.set(channel, (this.#allowed.get(channel) ?? this.#window) + more);
    this.#opts.send(T.CREDIT, new Writer().u8(channel).u32(more).done());
  }

  /** Accepts a connection that the agent opened */
  opened(): void {
    if (!this.#over) this.#opts.send(T.OPENED, Buffer.alloc(0));
  }

  /** Ends a stream that the agent opened */
  refuse(code: string, message: string): void {
    if (this.#over) return;
    this.#opts.send(T.ERROR, new Writer().str(code).str(message).done());
    this.lose(new ForkdError("CANCELLED", message));
  }

  resize(rows: number, cols: number): void {
    if (!this.#over) this.#opts.send(T.RESIZE, new Writer().u16(rows).u16(cols).done());
  }

  /** Cancels the stream; a process keeps running, a file transfer is abandoned */
  cancel(): void {
    if (this.#over) return;
    this.#opts.send(T.CANCEL, Buffer.alloc(0));
    this.lose(new ForkdError("CANCELLED", "The stream was cancelled."));
  }

  lose(error: ForkdError): void {
    if (this.#over) return;
    this.#finish();
    this.#isLost = true;
    this.#backlog.clear();
    this.#started.reject(error);
    this.#end.reject(error);
  }

  receive(frame: Frame): void {
    if (this.#over) return;
    switch (frame.type) {
      case T.DATA:
        this.#receiveData(frame.payload);
        return;
      case T.CREDIT: {
        const reader = new Reader(frame.payload);
        const channel = reader.u8();
        // Bound credit by the window: an agent that gives credit for bytes it did not get would make the host send without limit.
        this.#credit.set(channel, Math.min(WINDOW, this.#creditOf(channel) + reader.u32()));
        this.#wakeWriters();
        return;
      }
      case T.EOF:
        this.#receiveEof(new Reader(frame.payload).u8());
        return;
      case T.STARTED:
      case T.OPENED:
        this.#hasStarted = true;
        this.#started.resolve(new Reader(frame.payload));
        return;
      case T.RESULT:
      case T.EXIT:
        this.#finish();
        if (!this.#hasStarted) this.#started.reject(new CodecError("the process ended before it was started"));
        void this.#consumed.then(() => (this.#consumerFailure ? this.#end.reject(this.#consumerFailure) : this.#end.resolve(frame)));
        return;
      case T.ERROR: {
        const reader = new Reader(frame.payload);
        const error = new AgentError(reader.str(), reader.str());
        this.#finish();
        this.#started.reject(error);
        void this.#consumed.then(() => this.#end.reject(error));
        return;
      }
      default:
        return; // a newer agent may send more types
    }
  }

  #receiveData(payload: Buffer): void {
    if (payload.length === 0) throw new CodecError("DATA without a channel");
    const channel = payload.readUInt8(0);
    if (!this.#opts.channels.data.includes(channel)) throw new CodecError(`DATA on channel ${channel}`);
    if (this.#ended.has(channel)) throw new CodecError("DATA after EOF");
    const bytes = payload.subarray(1);
    if (bytes.length === 0 || this.#consumerFailure) return;
    const allowed = (this.#allowed.get(channel) ?? this.#window) - bytes.length;
    if (allowed < 0) throw new CodecError("DATA beyond its credit");
    this.#allowed.set(channel, allowed);
    if (!this.#opts.onData) {
      this.#giveBack(channel, bytes.length);
      return;
    }
    // after a consumer made us wait, later frames are queued
    if (this.#busy) {
      this.#backlog.add(channel, bytes);
      return;
    }
    let waiting: void | Promise<void>;
    try {
      waiting = this.#opts.onData(channel, bytes);
    } catch (error) {
      this.#failConsumer(error);
      return;
    }
    const rest = this.#opts.paced?.();
    if (waiting || rest) this.#consumed = this.#consume(Promise.all([waiting, rest]), channel, bytes.length);
    else this.#giveBack(channel, bytes.length);
  }

  #receiveEof(channel: number): void {
    if (!this.#opts.channels.eof.includes(channel)) throw new CodecError(`EOF on channel ${channel}`);
    if (this.#ended.has(channel)) throw new CodecError("EOF twice");
    this.#ended.add(channel);
    if (this.#busy) this.#backlog.end(channel);
    else this.#opts.onEof?.(channel);
  }

  /** Waits for the consumer, then delivers the queued frames until the queue is empty */
  async #consume(first: Promise<unknown>, channel: number, length: number): Promise<void> {
    this.#busy = true;
    try {
      await first;
      this.#giveBack(channel, length);
      while (!this.#backlog.isEmpty) for (const waiting of this.#backlog.take()) await this.#consumeOne(waiting);
    } catch (error) {
      this.#failConsumer(error);
    }
    this.#busy = false;
  }

  async #consumeOne({ channel, bytes }: Waiting): Promise<void> {
    if (this.#isLost) return;
    if (!bytes) {
      if (!this.#over) this.#opts.onEof?.(channel);
      return;
    }
    await this.#opts.onData?.(channel, bytes);
    await this.#opts.paced?.();
    this.#giveBack(channel, bytes.length);
  }

  /** Sends CANCEL: without it the guest's process would wait for credit indefinitely */
  #failConsumer(cause: unknown): void {
    this.#consumerFailure ??= new ForkdError("CANCELLED", `The consumer of the stream failed: ${messageOf(cause)}`, { cause });
    if (this.#over) return;
    this.#opts.send(T.CANCEL, Buffer.alloc(0));
    this.lose(this.#consumerFailure);
  }

  #giveBack(channel: number, length: number): void {
    const owed = (this.#owed.get(channel) ?? 0) + length;
    if (owed < this.#creditStep || this.#over) {
      this.#owed.set(channel, owed);
      return;
    }
    this.#owed.set(channel, 0);
    this.#allowed.set(channel, (this.#allowed.get(channel) ?? this.#window) + owed);
    this.#opts.send(T.CREDIT, new Writer().u8(channel).u32(owed).done());
  }

  #creditOf(channel: number): number {
    return this.#credit.get(channel) ?? this.#window;
  }

  #finish(): void {
    this.#over = true;
    this.#opts.onEnd();
    this.#wakeWriters();
  }

  #wakeWriters(): void {
    for (const wake of this.#creditWaiters.splice(0)) wake();
  }

  async #endError(): Promise<Error> {
    try {
      await this.#end.promise;
    } catch (error) {
      if (error instanceof Error) return error;
    }
    return new ForkdError("BAD_REQUEST", "Cannot write: the stream has ended.");
  }
}
