// A TCP connection to a server inside the guest, as a Node stream.

import { Duplex } from "node:stream";
import { ForkdError } from "../errors.ts";
import { Writer } from "../util/codec.ts";
import { within } from "../util/within.ts";
import type { AgentConnection } from "./wire/connection.ts";
import { CHANNEL, T } from "./wire/protocol.ts";
import { AgentError, type AgentStream } from "./wire/stream.ts";

const CONNECT_WITHIN_MS = 10_000;

export type ConnectOptions = {
  /** an IP address of the guest; default: loopback */
  host?: string;
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
};

export class GuestSocket extends Duplex {
  readonly #stream: AgentStream;
  #taken: (() => void) | undefined;

  private constructor(agent: AgentConnection, host: string, port: number) {
    // Buffer one piece at a time: otherwise each byte that the guest sends alone would leave an object while the reader waits.
    super({ allowHalfOpen: true, readableHighWaterMark: 1 });
    // Readers and writers get the error; without a listener it would end the process.
    this.on("error", () => undefined);
    this.#stream = agent.open(
      T.CONNECT,
      new Writer().str(host).u32(port).done(),
      // credit is returned to the guest when the reader wants more
      (_channel, bytes) => (this.push(bytes) ? undefined : new Promise<void>((resolve) => (this.#taken = resolve))),
      () => this.push(null),
    );
  }

  /** Rejects with PORT_CLOSED when nothing listens there */
  static async connect(agent: AgentConnection, port: number, opts: ConnectOptions = {}): Promise<GuestSocket> {
    const { host = "127.0.0.1", timeoutMs = CONNECT_WITHIN_MS, signal } = opts;
    const socket = new GuestSocket(agent, host, port);
    const timeout = (): Error =>
      new ForkdError("AGENT_TIMEOUT", `Cannot connect to port ${port} of the guest: no answer in ${timeoutMs} ms.`);
    try {
      await within(socket.#stream.started(), timeoutMs, signal, timeout);
    } catch (error) {
      socket.#stream.cancel();
      if (error instanceof AgentError)
        throw new ForkdError("PORT_CLOSED", `Cannot connect to port ${port} of the guest: ${error.message}.`, { cause: error });
      throw error;
    }
    socket.#watchEnd();
    return socket;
  }

  /** Ends with the guest's RESULT, which says whether all bytes arrived; a slow reader gets it before the end of the bytes */
  #watchEnd(): void {
    this.#stream.end().then(
      () => this.push(null),
      (error: unknown) => this.destroy(error as Error),
    );
  }

  override _read(): void {
    this.#takeMore();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    void this.#send(chunk, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#stream.eof(CHANNEL.stdin);
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#stream.cancel();
    this.#takeMore();
    done(error);
  }

  #takeMore(): void {
    const taken = this.#taken;
    this.#taken = undefined;
    taken?.();
  }

  async #send(chunk: Buffer, done: (error?: Error | null) => void): Promise<void> {
    try {
      await this.#stream.write(CHANNEL.stdin, chunk);
      done();
    } catch (error) {
      done(error as Error);
    }
  }
}
