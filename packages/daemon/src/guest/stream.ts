// One stream of an agent connection: credit in both directions, order kept, exactly one end.

import { ForkdError, messageOf, type ErrorCode } from "../errors.ts";
import { CodecError, Reader, Writer } from "./codec.ts";
import { CHANNEL, MAX_PAYLOAD, T, WINDOW, type Frame } from "./protocol.ts";

const CREDIT_STEP = 65536;
const LAST_CHANNEL = CHANNEL.control;

export type StreamOptions = {
  id: number;
  send: (type: number, payload: Buffer) => void;
  /** DATA: the bytes are not copied, so they must stay as they are */
  sendData: (channel: number, bytes: Uint8Array) => void;
  /** what to wait for before more is sent, if anything */
  drained: () => Promise<void> | undefined;
  /** consumer of DATA; credit goes back when it returns, or when its promise settles */
  onData: ((channel: number, bytes: Buffer) => void | Promise<void>) | undefined;
  /** hears that a channel has no more DATA, when all of it was consumed */
  onEof?: ((channel: number) => void) | undefined;
  /** stdin waits for the agent to say how much it takes */
  awaitsStdin?: boolean | undefined;
  onEnd: () => void;
  /** how many bytes may be on their way in each direction of a channel at first */
  window?: number;
};

/** An ERROR frame: `errno` holds the agent's own code */
export class AgentError extends ForkdError {
  readonly errno: string;

  constructor(errno: string, message: string, code: ErrorCode = "BAD_REQUEST") {
    super(code, message);
    this.errno = errno;
  }
}

export class AgentStream {
  readonly #opts: StreamOptions;
  /** what either side may have on its way unless it was given more */
  readonly #window: number;
  #creditStep: number;
  readonly #end = Promise.withResolvers<Frame>();
  readonly #started = Promise.withResolvers<Reader>();
  /** bytes we may still send, per channel */
  readonly #credit = new Map<number, number>();
  readonly #creditWaiters: (() => void)[] = [];
  /** bytes consumed and not yet given back, per channel */
  readonly #owed = new Map<number, number>();
  /** bytes the agent may still send, per channel */
  readonly #allowed = new Map<number, number>();
  #consumed: Promise<void> = Promise.resolve();
  #busy = false;
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

  /** Whether nothing more comes or goes */
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

  /** The STARTED frame of a process stream, the OPENED frame of a connection */
  async started(): Promise<Reader> {
    return this.#started.promise;
  }

  /** Sends bytes as the other side's credit allows; resolves when all are sent. They must not be changed before */
  async write(channel: number, bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length;) at += await this.writeSome(channel, bytes.subarray(at));
  }

  /** Sends what the other side's credit allows; how much. 0: it had to wait, and the caller may look around */
  async writeSome(channel: number, bytes: Uint8Array): Promise<number> {
    if (this.#over) throw await this.#endError();
    const credit = this.#creditOf(channel);
    if (credit === 0) {
      await new Promise<void>((resolve) => void this.#creditWaiters.push(resolve));
      return 0;
    }
    // asked before and not after: streams that come and go must not each leave a piece behind
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

  /** The agent may have as much on its way on this channel as on any other stream */
  widen(channel: number): void {
    const more = WINDOW - this.#window;
    if (this.#over || more === 0) return;
    this.#creditStep = CREDIT_STEP;
    this.#allowed.set(channel, (this.#allowed.get(channel) ?? this.#window) + more);
    this.#opts.send(T.CREDIT, new Writer().u8(channel).u32(more).done());
  }

  /** Of a connection that the agent opened: it stands */
  opened(): void {
    if (!this.#over) this.#opts.send(T.OPENED, Buffer.alloc(0));
  }

  /** Of a stream that the agent opened: it gets no more than this */
  refuse(code: string, message: string): void {
    if (this.#over) return;
    this.#opts.send(T.ERROR, new Writer().str(code).str(message).done());
    this.lose(new ForkdError("CANCELLED", message));
  }

  resize(rows: number, cols: number): void {
    if (!this.#over) this.#opts.send(T.RESIZE, new Writer().u16(rows).u16(cols).done());
  }

  /** Ends our interest; a process goes on, a file transfer is abandoned */
  cancel(): void {
    if (this.#over) return;
    this.#opts.send(T.CANCEL, Buffer.alloc(0));
    this.lose(new ForkdError("CANCELLED", "The stream was cancelled."));
  }

  lose(error: ForkdError): void {
    if (this.#over) return;
    this.#finish();
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
        // never more than the window: an agent that gives what it did not get would have us send without bound
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
        return; // a newer agent may say more than we ask for
    }
  }

  #receiveData(payload: Buffer): void {
    if (payload.length === 0) throw new CodecError("DATA without a channel");
    const channel = payload.readUInt8(0);
    if (channel > LAST_CHANNEL) throw new CodecError(`DATA on channel ${channel}`);
    const bytes = payload.subarray(1);
    if (bytes.length === 0 || this.#consumerFailure) return;
    const allowed = (this.#allowed.get(channel) ?? this.#window) - bytes.length;
    if (allowed < 0) throw new CodecError("DATA beyond its credit");
    this.#allowed.set(channel, allowed);
    if (!this.#opts.onData) {
      this.#giveBack(channel, bytes.length);
      return;
    }
    // once a consumer made us wait, everything after it waits in line
    if (!this.#busy) {
      let waiting: void | Promise<void>;
      try {
        waiting = this.#opts.onData(channel, bytes);
      } catch (error) {
        this.#failConsumer(error);
        return;
      }
      if (waiting) this.#queue(Promise.resolve(waiting), channel, bytes.length);
      else this.#giveBack(channel, bytes.length);
      return;
    }
    this.#queue(
      this.#consumed.then(() => (this.#consumerFailure ? undefined : this.#opts.onData?.(channel, bytes))),
      channel,
      bytes.length,
    );
  }

  #receiveEof(channel: number): void {
    const { onEof } = this.#opts;
    if (!onEof) return;
    if (this.#busy) void this.#consumed.then(() => (this.#over ? undefined : onEof(channel)));
    else onEof(channel);
  }

  #queue(work: Promise<void>, channel: number, length: number): void {
    this.#busy = true;
    const mine = work.then(
      () => this.#giveBack(channel, length),
      (error: unknown) => this.#failConsumer(error),
    );
    this.#consumed = mine.finally(() => {
      if (this.#consumed === tail) this.#busy = false;
    });
    const tail = this.#consumed;
  }

  /** Nobody takes the rest: without a CANCEL the guest's process would wait for ever for credit */
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
