// One connection to one agent: attaches, decodes, dispatches frames to their streams.

import { within } from "../../util/within.ts";
import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import { ForkdError } from "../../errors.ts";
import { CodecError, Reader, Writer } from "../../util/codec.ts";
import {
  attachedRecord,
  attachRecord,
  channelsOf,
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
import { Pace } from "../../util/pace.ts";

/** an agent has at most 4096 streams, so one that reads leaves no more answers unread */
const MAX_UNREAD_ANSWERS = 8192;
/**
 * A frame costs this process some microseconds, whatever its content, and one thread serves all sandboxes. Reading from an agent
 * that sends more than this pauses for a while: all such agents together get about 256 frames per millisecond.
 */
const FRAMES_PER_MS = 256;
/** A piece of output that is delivered to a client alone costs more: some ten microseconds */
const PIECES_PER_MS = 16;
const MAX_PIECES_AT_ONCE = 256;
/** Shared by all connections: bytes are copied out of it before the next read */
const READ_BUFFER = Buffer.allocUnsafeSlow(65536);

export type Hello = { protocol: number; agentVersion: string; guestKernel: string; attachCount: number; uptimeMs: number };

/** Time at which the agent answered the attach record: the guest's uptime, and the host's clock before and after */
export type Attached = { guestMs: number; fromMs: number; toMs: number };

/** A stream that the agent opens */
export type Incoming = {
  type: number;
  payload: Buffer;
  /** Accepts it as a stream */
  open: (opts: Pick<StreamOptions, "onData" | "onEof" | "window" | "awaitsStdin">) => AgentStream;
  /** Ends it with RESULT */
  answer: (payload: Buffer) => void;
  /** Ends it with ERROR */
  refuse: (code: string, message: string) => void;
};

export class AgentConnection {
  readonly #socket: Socket;
  #decoder: FrameDecoder | undefined;
  readonly #streams = new Map<number, AgentStream>();
  readonly #hello = Promise.withResolvers<Hello>();
  #nextStream = 1;
  /** small frames for streams opened by the agent that it has not read yet */
  #unread = 0;
  #onIncoming: ((incoming: Incoming) => void) | undefined;
  #draining: Promise<void> | undefined;
  /** number of reasons not to read */
  #holds = 0;
  readonly #pieces = new Pace({ perMs: PIECES_PER_MS, burst: MAX_PIECES_AT_ONCE, hold: () => this.#restPieces() });
  /** consumers get no piece before this settles */
  #resting: Promise<void> | undefined;
  readonly #pace = new Pace({ perMs: FRAMES_PER_MS, burst: FRAMES_PER_MS, hold: () => this.hold() });
  #lost: ForkdError | undefined;
  #attachSentMs = 0;
  #attached: Attached | undefined;

  /**
   * Connects to the Unix socket of a VM's agent port; sends nothing before attach(). Connect early: a port that is already connected
   * when the VM is resumed causes no event in its guest.
   */
  constructor(path: string) {
    this.#hello.promise.catch(() => undefined); // hello() reports it; without this a rejection would be unhandled
    // A paused stream continues to read until its buffer is full; with our own buffer, pause() stops reading at once.
    const callback = (count: number, bytes: Uint8Array): boolean => {
      this.#receive(Buffer.from(bytes.subarray(0, count)));
      return true;
    };
    this.#socket = connect({ path, onread: { buffer: READ_BUFFER, callback } });
    this.#socket.on("error", (error) => this.#lose(`its channel failed: ${error.message}`));
    this.#socket.on("close", () => this.#lose("its channel was closed"));
  }

  /** Sends the attach record, without waiting for the answer */
  attach(key: Buffer): this {
    const nonce = randomBytes(16);
    this.#attachSentMs = performance.now();
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

  /** Opens a stream with a request; frames may be sent before the agent has answered */
  open(
    type: number,
    payload: Buffer,
    onData?: (channel: number, bytes: Buffer) => void | Promise<void>,
    onEof?: (channel: number) => void,
  ): AgentStream {
    if (payload.length > MAX_PAYLOAD) {
      const limit = `a request (a program's arguments and environment together, or a path) has room for ${MAX_PAYLOAD}`;
      throw new ForkdError("BAD_REQUEST", `Cannot send the guest a request of ${payload.length} bytes: ${limit}.`, {
        hint: "Pass large data through a file or stdin.",
      });
    }
    const id = this.#nextStream++;
    const stream = this.#stream(id, type, { onData, onEof, awaitsStdin: type === T.ATTACH });
    this.#send(type, id, payload);
    return stream;
  }

  /** Sets the handler of streams that the agent opens; without it they are refused */
  accept(onIncoming: (incoming: Incoming) => void): void {
    this.#onIncoming = onIncoming;
  }

  /** Sends one request and returns the reader of its RESULT */
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

  /**
   * Reads nothing until the result is disposed. A read on the host makes the VMM take bytes from the guest's port, even while the VM is
   * stopped, and mark them as used in guest memory. Memory and device state that are saved meanwhile would be inconsistent.
   */
  hold(): Disposable {
    this.#holds++;
    this.#socket.pause();
    return { [Symbol.dispose]: () => this.#release() };
  }

  get attached(): Attached | undefined {
    return this.#attached;
  }

  get lost(): ForkdError | undefined {
    return this.#lost;
  }

  close(): void {
    this.#lose("the host closed its channel");
  }

  #stream(id: number, type: number, opts: Pick<StreamOptions, "onData" | "onEof" | "window" | "awaitsStdin">): AgentStream {
    const stream = new AgentStream({
      ...opts,
      channels: channelsOf(type),
      send: (kind, payload) => {
        // The agent causes these frames, in any number.
        if (id >= FIRST_OF_AGENT || kind === T.CREDIT) this.#answer(kind, id, payload);
        else this.#send(kind, id, payload);
      },
      sendData: (channel, bytes) => this.#sendData(id, channel, bytes),
      drained: () => this.#drained(),
      paced: () => {
        this.#pieces.count(1);
        return this.#resting;
      },
      onEnd: () => this.#streams.delete(id),
    });
    if (this.#lost) stream.lose(this.#lost);
    else this.#streams.set(id, stream);
    return stream;
  }

  #incoming({ type, stream: id, payload }: Frame): void {
    if (type !== T.DIAL && type !== T.RESOLVE) return; // of a stream that has ended
    // It costs as much as a piece of output: the policy is evaluated, and an answer is written.
    this.#pace.count(FRAMES_PER_MS / PIECES_PER_MS);
    const refuse = (code: string, message: string): void => this.#answer(T.ERROR, id, new Writer().str(code).str(message).done());
    if (!this.#onIncoming) return refuse("unsupported", "there is no network");
    const answer = (result: Buffer): void => this.#answer(T.RESULT, id, result);
    this.#onIncoming({ type, payload, open: (opts) => this.#stream(id, type, opts), answer, refuse });
  }

  /** Bounds the answers to an agent that sends requests without reading */
  #answer(type: number, stream: number, payload: Buffer): void {
    if (this.#lost) return;
    if (++this.#unread > MAX_UNREAD_ANSWERS) return this.#lose("it does not read its input");
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

  /** Bounds the bytes to a guest that gives credit without reading */
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

  #release(): void {
    if (--this.#holds === 0) this.#socket.resume();
  }

  #restPieces(): Disposable {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#resting = promise;
    const go = (): void => {
      this.#resting = undefined;
      resolve();
    };
    return { [Symbol.dispose]: go };
  }

  #receive(chunk: Buffer): void {
    try {
      // Bytes from before our attach record belong to an earlier connection.
      const frames = this.#decoder?.push(chunk) ?? [];
      for (const frame of frames) this.#dispatch(frame);
      this.#pace.count(frames.length);
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
    const hello = {
      protocol,
      agentVersion: reader.str(),
      guestKernel: reader.str(),
      attachCount: reader.u32(),
      uptimeMs: Number(reader.u64()),
    };
    // it is rounded down to milliseconds
    this.#attached = { guestMs: hello.uptimeMs, fromMs: this.#attachSentMs - 1, toMs: performance.now() };
    this.#hello.resolve(hello);
  }

  #lose(why: string): void {
    this.#end(new ForkdError("AGENT_LOST", `The connection to the guest's agent has ended: ${why}.`));
  }

  #end(error: ForkdError): void {
    if (this.#lost) return;
    this.#lost = error;
    this.#pace.close();
    this.#pieces.close();
    this.#socket.destroy();
    this.#hello.reject(this.#lost);
    for (const stream of this.#streams.values()) stream.lose(this.#lost);
    this.#streams.clear();
  }
}
