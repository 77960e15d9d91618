// One connection to one agent: attaches, decodes, hands frames to their streams.

import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import { ForkdError, messageOf } from "../errors.ts";
import { CodecError, Reader, Writer } from "./codec.ts";
import {
  attachedRecord,
  attachRecord,
  encodeDataHead,
  encodeFrame,
  FIRST_OF_AGENT,
  FrameDecoder,
  MAX_PAYLOAD,
  PROTOCOL_VERSION,
  T,
  type Frame,
} from "./protocol.ts";
import { AgentStream, type StreamOptions } from "./stream.ts";

/** an agent has at most 4096 streams, so one that reads leaves no more answers waiting */
const MAX_UNREAD_ANSWERS = 8192;

export type Hello = { protocol: number; agentVersion: string; guestKernel: string; attachCount: number; uptimeMs: number };

/** A stream that the agent opens */
export type Incoming = {
  type: number;
  payload: Buffer;
  /** Goes on as a stream */
  open: (opts: Pick<StreamOptions, "onData" | "onEof" | "window" | "awaitsStdin">) => AgentStream;
  /** Ends it with a RESULT */
  answer: (payload: Buffer) => void;
  /** Ends it with an ERROR */
  refuse: (code: string, message: string) => void;
};

export class AgentConnection {
  readonly #socket: Socket;
  #decoder: FrameDecoder | undefined;
  readonly #streams = new Map<number, AgentStream>();
  readonly #hello = Promise.withResolvers<Hello>();
  #nextStream = 1;
  /** small frames for streams that the agent opened, and that it has not read */
  #unread = 0;
  #onIncoming: ((incoming: Incoming) => void) | undefined;
  #draining: Promise<void> | undefined;
  #lost: ForkdError | undefined;

  /**
   * Connects to the Unix socket of a VM's agent port; nothing is said before attach(). The earlier the better: a port that is
   * connected when the VM goes on is nothing new to its guest.
   */
  constructor(path: string) {
    this.#hello.promise.catch(() => undefined); // whoever needs it awaits hello(); nobody else must crash
    this.#socket = connect(path);
    this.#socket.on("data", (chunk) => this.#receive(chunk));
    this.#socket.on("error", (error) => this.#lose(`its channel failed: ${error.message}`));
    this.#socket.on("close", () => this.#lose("its channel was closed"));
  }

  /** Sends the attach record, without waiting for the answer */
  attach(key: Buffer): this {
    const nonce = randomBytes(16);
    this.#decoder = new FrameDecoder(attachedRecord(nonce));
    this.#socket.write(attachRecord(key, nonce));
    return this;
  }

  /** Resolves when the agent has answered the attach record */
  async hello(timeoutMs: number, signal?: AbortSignal): Promise<Hello> {
    return within(
      this.#hello.promise,
      timeoutMs,
      signal,
      () => new ForkdError("AGENT_TIMEOUT", `The guest's agent did not answer within ${timeoutMs} ms.`),
    );
  }

  /** Opens a stream with a request; frames may be sent before the agent has answered anything */
  open(
    type: number,
    payload: Buffer,
    onData?: (channel: number, bytes: Buffer) => void | Promise<void>,
    onEof?: (channel: number) => void,
  ): AgentStream {
    if (payload.length > MAX_PAYLOAD) {
      const limit = `a request (a program's arguments and environment together, or a path) has room for ${MAX_PAYLOAD}`;
      throw new ForkdError("BAD_REQUEST", `Cannot ask the guest with ${payload.length} bytes: ${limit}.`, {
        hint: "Pass large data through a file or stdin.",
      });
    }
    const id = this.#nextStream++;
    const stream = this.#stream(id, { onData, onEof, awaitsStdin: type === T.ATTACH });
    this.#send(type, id, payload);
    return stream;
  }

  /** From now on streams that the agent opens come here; without it they are refused */
  accept(onIncoming: (incoming: Incoming) => void): void {
    this.#onIncoming = onIncoming;
  }

  /** Sends one request and gives back the reader of its RESULT */
  async call(type: number, payload: Buffer, opts: { timeoutMs: number; signal?: AbortSignal | undefined }): Promise<Reader> {
    const stream = this.open(type, payload);
    try {
      return await within(
        stream.result(),
        opts.timeoutMs,
        opts.signal,
        () => new ForkdError("AGENT_TIMEOUT", `The guest's agent did not answer within ${opts.timeoutMs} ms.`),
      );
    } finally {
      stream.cancel();
    }
  }

  get lost(): ForkdError | undefined {
    return this.#lost;
  }

  close(): void {
    this.#lose("the host closed its channel");
  }

  #stream(id: number, opts: Pick<StreamOptions, "onData" | "onEof" | "window" | "awaitsStdin">): AgentStream {
    const stream = new AgentStream({
      ...opts,
      id,
      send: (type, payload) => {
        if (id >= FIRST_OF_AGENT && type !== T.CREDIT) this.#answer(type, id, payload);
        else this.#send(type, id, payload);
      },
      sendData: (channel, bytes) => this.#sendData(id, channel, bytes),
      drained: () => this.#drained(),
      onEnd: () => this.#streams.delete(id),
    });
    if (this.#lost) stream.lose(this.#lost);
    else this.#streams.set(id, stream);
    return stream;
  }

  #incoming({ type, stream: id, payload }: Frame): void {
    if (type !== T.DIAL && type !== T.RESOLVE) return; // of a stream that has ended
    const refuse = (code: string, message: string): void => this.#answer(T.ERROR, id, new Writer().str(code).str(message).done());
    if (!this.#onIncoming) return refuse("unsupported", "there is no network");
    const answer = (result: Buffer): void => this.#answer(T.RESULT, id, result);
    this.#onIncoming({ type, payload, open: (opts) => this.#stream(id, opts), answer, refuse });
  }

  /** An agent that asks without end and reads no answer must not fill the host's memory */
  #answer(type: number, stream: number, payload: Buffer): void {
    if (this.#lost) return;
    if (++this.#unread > MAX_UNREAD_ANSWERS) return this.#lose("it does not read what it asked for");
    this.#socket.write(encodeFrame(type, stream, payload), () => this.#unread--);
  }

  #send(type: number, stream: number, payload: Buffer): void {
    if (!this.#lost) this.#socket.write(encodeFrame(type, stream, payload));
  }

  #sendData(stream: number, channel: number, bytes: Uint8Array): void {
    if (this.#lost) return;
    this.#socket.cork();
    this.#socket.write(encodeDataHead(stream, channel, bytes.length));
    this.#socket.write(bytes);
    this.#socket.uncork();
  }

  /** A guest that gives credit and does not read must not fill the host's memory */
  #drained(): Promise<void> | undefined {
    if (!this.#socket.writableNeedDrain) return undefined;
    this.#draining ??= new Promise<void>((resolve) => {
      const done = (): void => {
        this.#socket.off("drain", done).off("close", done);
        this.#draining = undefined;
        resolve();
      };
      this.#socket.on("drain", done).on("close", done);
    });
    return this.#draining;
  }

  #receive(chunk: Buffer): void {
    try {
      // what comes before the attach record was sent is of another life
      for (const frame of this.#decoder?.push(chunk) ?? []) this.#dispatch(frame);
    } catch (error) {
      if (!(error instanceof CodecError)) throw error;
      this.#lose(`it broke the protocol: ${error.message.replace(/\.$/, "")}`);
    }
  }

  #dispatch(frame: Frame): void {
    if (frame.type !== T.HELLO) {
      const stream = this.#streams.get(frame.stream);
      if (stream) stream.receive(frame);
      else if (frame.stream >= FIRST_OF_AGENT) this.#incoming(frame);
      return;
    }
    const reader = new Reader(frame.payload);
    const protocol = reader.u32();
    if (protocol !== PROTOCOL_VERSION) {
      this.#end(new ForkdError("AGENT_PROTOCOL", `The guest's agent speaks protocol ${protocol}, this host ${PROTOCOL_VERSION}.`));
      return;
    }
    this.#hello.resolve({
      protocol,
      agentVersion: reader.str(),
      guestKernel: reader.str(),
      attachCount: reader.u32(),
      uptimeMs: Number(reader.u64()),
    });
  }

  #lose(why: string): void {
    this.#end(new ForkdError("AGENT_LOST", `The guest's agent is gone: ${why}.`));
  }

  #end(error: ForkdError): void {
    if (this.#lost) return;
    this.#lost = error;
    this.#socket.destroy();
    this.#hello.reject(this.#lost);
    for (const stream of this.#streams.values()) stream.lose(this.#lost);
    this.#streams.clear();
  }
}

export function throwIfCancelled(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw cancelled(signal);
}

function cancelled(signal: AbortSignal | undefined): ForkdError {
  return new ForkdError("CANCELLED", `Cancelled: ${messageOf(signal?.reason)}.`);
}

/** The promise's outcome, or the error after the time, or the signal's reason */
export async function within<V>(promise: Promise<V>, timeoutMs: number, signal: AbortSignal | undefined, timeout: () => Error): Promise<V> {
  if (signal?.aborted) promise.catch(() => undefined); // nobody else waits for it
  throwIfCancelled(signal);
  const stop = Promise.withResolvers<never>();
  const timer = timeoutMs > 0 ? setTimeout(() => stop.reject(timeout()), timeoutMs) : undefined;
  const abort = (): void => stop.reject(cancelled(signal));
  signal?.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([promise, stop.promise]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}
