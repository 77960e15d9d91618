// One outgoing connection of a guest program: connected by the host, relayed with back-pressure, counted.

import { connect, type Socket } from "node:net";
import { ForkdError } from "../errors.ts";
import { CodecError } from "../util/codec.ts";
import type { AgentStream } from "../agent/wire/stream.ts";
import { CHANNEL } from "../agent/wire/protocol.ts";
import { formatAddress } from "./addresses.ts";
import type { Target } from "./policy.ts";

const CONNECT_WITHIN_MS = 30_000;
/** time for the last bytes to leave after the program has closed the connection */
const LINGER_MS = 30_000;
const KEEP_ALIVE_MS = 60_000;

export type ConnectionRecord = {
  time: Date;
  name: string | null;
  /** null: the name was refused */
  ip: string | null;
  port: number | null;
  decision: "allowed" | "refused";
  reason: string;
  /** reason of an abnormal end */
  error: string | null;
  bytesUp: number;
  bytesDown: number;
  ms: number;
  open: boolean;
};

export type OutgoingOptions = {
  target: Target & { port: number };
  record: ConnectionRecord;
  /** Whether this many more bytes may be sent */
  spend: (bytes: number) => boolean;
  onDown: (bytes: number) => void;
  /** Whether it may have large buffers; only some of many connections may */
  isWide: () => boolean;
  /** Called when it is connected, with the socket's addresses; false: refuse it */
  onConnected: (socket: Socket) => boolean;
  /** Called once at its end */
  onEnd: () => void;
};

export class Outgoing {
  readonly target: Target & { port: number };
  readonly record: ConnectionRecord;
  readonly #opts: OutgoingOptions;
  readonly #began = performance.now();
  #stream: AgentStream | undefined;
  #socket: Socket | undefined;
  /** settles when the last bytes from the peer are on their way to the program */
  #sent: Promise<void> = Promise.resolve();
  #drained: (() => void) | undefined;
  #hasEnded = false;
  #isClosed = false;
  #isOver = false;

  constructor(opts: OutgoingOptions) {
    this.target = opts.target;
    this.record = opts.record;
    this.#opts = opts;
  }

  /** Connects to the address that the policy allowed, never to a name; `stream` leads to the program */
  start(stream: AgentStream): void {
    this.#stream = stream;
    const { address, port } = this.target;
    const socket = connect({
      host: formatAddress(address),
      port,
      autoSelectFamily: false,
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
    });
    this.#socket = socket;
    const late = setTimeout(() => this.cut("ETIMEDOUT"), CONNECT_WITHIN_MS);
    socket.once("connect", () => {
      clearTimeout(late);
      if (!this.#opts.onConnected(socket)) return;
      stream.opened();
      if (this.#opts.isWide()) stream.widen(CHANNEL.stdin);
    });
    socket.on("data", (chunk) => this.#down(chunk));
    // a paused socket still emits its end: deliver the bytes before it first
    socket.once("end", () => void this.#sent.then(() => stream.eof(CHANNEL.stdin)));
    socket.on("error", (error: NodeJS.ErrnoException) => this.cut(error.code ?? error.message));
    socket.once("close", () => {
      clearTimeout(late);
      this.#wake();
      this.#isClosed = true;
      if (this.#hasEnded) this.#finish(null);
    });
    // the program has closed both directions, was cut off, or its guest has ended
    stream.end().then(
      () => this.#linger(socket),
      (error: Error) => this.cut(error.message),
    );
  }

  /** Bytes of the program; a promise when the sender must wait */
  up(bytes: Buffer): void | Promise<void> {
    const socket = this.#socket;
    // an agent that sends before OPENED violates the protocol
    if (!socket || socket.connecting) throw new CodecError("DATA before OPENED");
    if (!this.#opts.spend(bytes.length)) return this.cut("the egress limit is reached");
    this.record.bytesUp += bytes.length;
    // One write at a time: a peer that does not read must not leave an object for each byte that the guest sends alone.
    return new Promise<void>((resolve) => {
      this.#drained = resolve;
      socket.write(bytes, () => this.#wake());
    });
  }

  endUp(): void {
    this.#socket?.end();
  }

  /** Resets both ends at once */
  cut(why: string): void {
    if (this.#isOver) return;
    this.#stream?.cancel();
    // before it is connected there is no peer to reset
    if (this.#socket?.connecting) this.#socket.destroy();
    else this.#socket?.resetAndDestroy();
    this.#finish(why);
  }

  #down(chunk: Buffer): void {
    this.record.bytesDown += chunk.length;
    this.#opts.onDown(chunk.length);
    this.#socket?.pause();
    this.#sent = this.#send(chunk);
  }

  async #send(chunk: Buffer): Promise<void> {
    try {
      await this.#stream?.write(CHANNEL.stdin, chunk);
      this.#socket?.resume();
    } catch (error) {
      // handled above as the end of the stream
      if (!(error instanceof ForkdError)) throw error;
    }
  }

  /** Waits until the program's last bytes have left */
  #linger(socket: Socket): void {
    this.#hasEnded = true;
    if (this.#isClosed) return this.#finish(null);
    socket.setTimeout(LINGER_MS, () => socket.destroy());
    socket.destroySoon();
  }

  #wake(): void {
    this.#drained?.();
    this.#drained = undefined;
  }

  #finish(error: string | null): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#wake();
    this.record.open = false;
    this.record.error = error;
    this.record.ms = performance.now() - this.#began;
    this.#opts.onEnd();
  }
}
