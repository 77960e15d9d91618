// One connection of a program in a guest to somebody outside: connected from here, piped with back-pressure, counted.

import { connect, type Socket } from "node:net";
import { ForkdError } from "../errors.ts";
import { CodecError } from "../guest/codec.ts";
import type { AgentStream } from "../guest/stream.ts";
import { CHANNEL } from "../guest/protocol.ts";
import { formatAddress } from "./addresses.ts";
import type { Target } from "./policy.ts";

const CONNECT_WITHIN_MS = 30_000;
/** how long what a program sent last may take to leave after it has gone */
const LINGER_MS = 30_000;
const KEEP_ALIVE_MS = 60_000;

export type ConnectionRecord = {
  time: Date;
  name: string | null;
  /** null: it did not get beyond its name */
  ip: string | null;
  port: number | null;
  decision: "allowed" | "refused";
  reason: string;
  /** why it ended, if not in order */
  error: string | null;
  bytesUp: number;
  bytesDown: number;
  ms: number;
  open: boolean;
};

export type OutgoingOptions = {
  target: Target & { port: number };
  record: ConnectionRecord;
  /** Whether so many more bytes may leave */
  spend: (bytes: number) => boolean;
  onDown: (bytes: number) => void;
  /** Whether much of it may be on its way; of many connections, only of some */
  isWide: () => boolean;
  /** Hears that it stands, with what the socket itself says; false: it must not */
  onConnected: (socket: Socket) => boolean;
  /** Hears that it is over, once */
  onEnd: () => void;
};

export class Outgoing {
  readonly target: Target & { port: number };
  readonly record: ConnectionRecord;
  readonly #opts: OutgoingOptions;
  readonly #began = performance.now();
  #stream: AgentStream | undefined;
  #socket: Socket | undefined;
  /** settles when what came last from outside is on its way to the program */
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

  /** Connects to the address that was decided about, and to no name; `stream` goes to the program */
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
    // a paused socket tells its end all the same: what came before it goes first
    socket.once("end", () => void this.#sent.then(() => stream.eof(CHANNEL.stdin)));
    socket.on("drain", () => this.#wake());
    socket.on("error", (error: NodeJS.ErrnoException) => this.cut(error.code ?? error.message));
    socket.once("close", () => {
      clearTimeout(late);
      this.#wake();
      this.#isClosed = true;
      if (this.#hasEnded) this.#finish(null);
    });
    // the program has ended both directions, or was cut off, or its guest is gone
    stream.end().then(
      () => this.#linger(socket),
      (error: Error) => this.cut(error.message),
    );
  }

  /** Bytes of the program; a promise when they have to wait */
  up(bytes: Buffer): void | Promise<void> {
    const socket = this.#socket;
    // an agent that sends before the connection stands does not speak our protocol
    if (!socket || socket.connecting) throw new CodecError("DATA before OPENED");
    if (!this.#opts.spend(bytes.length)) return this.cut("the egress limit is reached");
    this.record.bytesUp += bytes.length;
    if (socket.write(bytes)) return undefined;
    return new Promise<void>((resolve) => (this.#drained = resolve));
  }

  endUp(): void {
    this.#socket?.end();
  }

  /** Ends it at once; both ends see a reset */
  cut(why: string): void {
    if (this.#isOver) return;
    this.#stream?.cancel();
    // one that does not stand yet has nobody to tell
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
      // the stream's own end is seen above
      if (!(error instanceof ForkdError)) throw error;
    }
  }

  /** What the program sent last may still have to leave */
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
