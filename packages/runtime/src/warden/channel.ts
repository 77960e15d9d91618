// Requests to a warden and their replies, over any transport.

import { ForkdError, type ErrorCode } from "../errors.ts";
import { CodecError, Reader, type Writer } from "../util/codec.ts";
import type { Transport } from "./transport.ts";

const REPLY = { error: 0x81, exit: 0x82 } as const;
const MAX_MESSAGE = 1024 * 1024;
/** op and request id */
const HEAD = 5;

/** Context of a request, for its error */
export type Failure = { code: ErrorCode; what: string };

export type ChannelEvents = {
  /** A process has ended; -1 means no code, 0 no signal */
  exit: (pid: number, code: number, signal: number) => void;
  /** The channel has ended: no requests, no events */
  over: () => void;
};

/** Error reply of the warden: `code` is an errno name or a word */
export class WardenFault extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.name = "WardenFault";
    this.code = code;
  }
}

type Pending = { receive: (payload: Reader) => void; reject: (error: ForkdError) => void; failure: Failure };

export class WardenChannel {
  readonly #transport: Transport;
  readonly #events: ChannelEvents;
  readonly #pending = new Map<number, Pending>();
  readonly #lost = Promise.withResolvers<string>();
  readonly #ended = Promise.withResolvers<void>();
  #lastId = 0;
  #received: Buffer = Buffer.alloc(0);
  #over: string | undefined;

  constructor(transport: Transport, events: ChannelEvents) {
    this.#transport = transport;
    this.#events = events;
    const end = (why: string): void => {
      this.#fail(why);
      this.#ended.resolve();
    };
    transport.listen({ data: (chunk) => this.#receive(chunk), end });
  }

  /** Reason why the channel accepts no requests; undefined: it does */
  get over(): string | undefined {
    return this.#over;
  }

  /** The warden outlives this channel */
  get isDurable(): boolean {
    return this.#transport.endInput === undefined;
  }

  /** Resolves with the reason when the channel ended without retire() */
  get lost(): Promise<string> {
    return this.#lost.promise;
  }

  /** Resolves when the transport has ended, expected or not */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  async request<T>(op: number, payload: Writer, failure: Failure, parse: (reader: Reader) => T): Promise<T> {
    if (this.#over !== undefined) throw wardenFailed(failure.what, this.#over);
    const body = payload.done();
    if (body.length + HEAD > MAX_MESSAGE) throw new ForkdError(failure.code, `${failure.what}: the request has ${body.length} bytes.`);
    return new Promise<T>((resolve, reject) => {
      const id = this.#send(op, body);
      // parsed on arrival: an exit that follows at once must find its process registered
      this.#pending.set(id, { receive: (reader) => resolve(parse(reader)), reject, failure });
    });
  }

  /** Refuses further requests, and makes the end expected; returns false if the channel had already ended */
  retire(why: string): boolean {
    if (this.#over !== undefined) return false;
    this.#over = why;
    return true;
  }

  /** Asks the warden to end; `op` is for a warden at a socket, which does not end with its input */
  askToEnd(op: number): void {
    if (this.#transport.endInput) this.#transport.endInput();
    else this.#send(op, Buffer.alloc(0));
  }

  /** Ends the transport immediately */
  cut(why: string): void {
    this.#fail(why);
    this.#transport.destroy();
  }

  #send(op: number, body: Buffer): number {
    this.#lastId = (this.#lastId + 1) >>> 0;
    const head = Buffer.allocUnsafe(4 + HEAD);
    head.writeUInt32LE(HEAD + body.length, 0);
    head.writeUInt8(op, 4);
    head.writeUInt32LE(this.#lastId, 5);
    this.#transport.write(Buffer.concat([head, body]));
    return this.#lastId;
  }

  #receive(chunk: Buffer): void {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    while (this.#received.length >= 4) {
      const length = this.#received.readUInt32LE(0);
      if (length < HEAD || length > MAX_MESSAGE) return this.cut(`it sent a message of ${length} bytes`);
      if (this.#received.length < 4 + length) return;
      const body = this.#received.subarray(4, 4 + length);
      this.#received = this.#received.subarray(4 + length);
      try {
        this.#handle(body.readUInt8(0), body.readUInt32LE(1), new Reader(body.subarray(HEAD)));
      } catch (error) {
        if (!(error instanceof CodecError)) throw error;
        return this.cut(`it sent ${error.message}`);
      }
    }
  }

  #handle(op: number, id: number, payload: Reader): void {
    if (op === REPLY.exit) return this.#events.exit(payload.u32(), payload.i32(), payload.u32());
    const pending = this.#pending.get(id);
    if (!pending) return;
    if (op === REPLY.error) pending.reject(failed(pending.failure, payload.str(), payload.str()));
    else pending.receive(payload);
    this.#pending.delete(id);
  }

  #fail(why: string): void {
    if (this.#over === undefined) this.#lost.resolve(why);
    this.#over ??= why;
    const reason = this.#over;
    this.#events.over();
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject, failure } of pending) reject(wardenFailed(failure.what, reason));
  }
}

function wardenFailed(what: string, why: string): ForkdError {
  return new ForkdError("WARDEN_FAILED", `${what}: the warden is gone, ${why}.`);
}

function failed(failure: Failure, code: string, message: string): ForkdError {
  // after an upgrade the daemon may be connected to the warden of an earlier version, which keeps its VMs
  if (code === "ENOSYS")
    return new ForkdError("WARDEN_FAILED", `${failure.what}: the warden that runs is of another version (${message}).`, {
      hint: "End its sandboxes with 'forkd kill --all', then stop the daemon with 'forkd down' and start it again.",
      cause: new WardenFault(code, message),
    });
  return new ForkdError(publicCode(failure.code, code), `${failure.what}: ${message}.`, { cause: new WardenFault(code, message) });
}

function publicCode(failure: ErrorCode, code: string): ErrorCode {
  if (code === "ENOSPC" || code === "EDQUOT") return "NO_SPACE";
  if (code === "no_confinement") return "CONFINEMENT_UNAVAILABLE";
  return code === "bad_delta" ? "SNAPSHOT_INVALID" : failure;
}
