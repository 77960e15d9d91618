// A scripted agent on a Unix socket: it answers the attach record, then follows the test's behaviour.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { until } from "../../../../tests/helpers/until.ts";
import { patience } from "../../../../tests/helpers/patience.ts";
import { Reader, Writer } from "../../src/util/codec.ts";
import { AgentConnection } from "../../src/agent/wire/connection.ts";
import {
  attachedRecord,
  attachRecord,
  CHANNEL,
  encodeFrame,
  FrameDecoder,
  PROTOCOL_VERSION,
  T,
  WINDOW,
  type Frame,
} from "../../src/agent/wire/protocol.ts";

const ATTACH_BYTES = 48;

export const KEY = Buffer.alloc(16, 1);

export type Behaviour = (agent: FakeAgent, frame: Frame) => void;

export class FakeAgent implements AsyncDisposable {
  readonly path: string;
  /** every frame the host sent, in order */
  readonly received: Frame[] = [];
  readonly #dir: string;
  readonly #server: Server;
  readonly #behave: Behaviour;
  readonly #protocol: number;
  readonly #connections: AgentConnection[] = [];
  readonly #credit = new Map<number, number>();
  #onCredit: (() => void) | undefined;
  #socket: Socket | undefined;

  static async listen(behave: Behaviour, opts: { protocol?: number } = {}): Promise<FakeAgent> {
    const agent = new FakeAgent(await mkdtemp(join(tmpdir(), "forkd-fake-agent-")), behave, opts.protocol ?? PROTOCOL_VERSION);
    await new Promise<void>((resolve) => agent.#server.listen(agent.path, resolve));
    return agent;
  }

  private constructor(dir: string, behave: Behaviour, protocol: number) {
    this.#dir = dir;
    this.#protocol = protocol;
    this.path = join(dir, "agent");
    this.#behave = behave;
    this.#server = createServer((socket) => this.#serve(socket));
  }

  /** A connection that is attached */
  async connect(): Promise<AgentConnection> {
    const connection = this.connection().attach(KEY);
    await connection.hello(patience());
    return connection;
  }

  /** A connection before the attach record */
  connection(): AgentConnection {
    const connection = new AgentConnection(this.path);
    this.#connections.push(connection);
    return connection;
  }

  send(type: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): void {
    this.#socket?.write(encodeFrame(type, stream, payload));
  }

  /** Sends frames in one write; resolves when the host has room for more */
  async sendAll(frames: Uint8Array): Promise<void> {
    await new Promise<void>((resolve) => void this.#socket?.write(frames, () => resolve()));
  }

  stopReading(): void {
    this.#socket?.pause();
  }

  started(stream: number): void {
    this.send(T.STARTED, stream, new Writer().u64(7n).u32(8).u64(0n).u64(0n).done());
  }

  exit(stream: number, code = 0): void {
    this.send(T.EXIT, stream, new Writer().i32(code).u32(0).u8(0).done());
  }

  data(stream: number, channel: number, bytes: Uint8Array | string): void {
    this.send(T.DATA, stream, Buffer.concat([Buffer.of(channel), Buffer.from(bytes)]));
  }

  control(stream: number, message: object | string): void {
    this.data(stream, CHANNEL.control, `${typeof message === "string" ? message : JSON.stringify(message)}\n`);
  }

  /** Sends as much as the host's credit allows, without end */
  async flood(stream: number, channel: number): Promise<void> {
    const chunk = Buffer.alloc(32768, "a");
    while (this.#socket?.writable) {
      const credit = this.#credit.get(stream) ?? WINDOW;
      if (credit < chunk.length) {
        await new Promise<void>((resolve) => (this.#onCredit = resolve));
        continue;
      }
      this.#credit.set(stream, credit - chunk.length);
      this.data(stream, channel, chunk);
    }
  }

  count(type: number): number {
    return this.received.filter((frame) => frame.type === type).length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const connection of this.#connections) connection.close();
    this.#socket?.destroy();
    this.#onCredit?.();
    await new Promise((resolve) => this.#server.close(resolve));
    await rm(this.#dir, { recursive: true });
  }

  #serve(socket: Socket): void {
    this.#socket = socket;
    let before: Buffer | undefined = Buffer.alloc(0);
    const decoder = new FrameDecoder();
    socket.on("error", () => undefined); // the host ends connections in these tests
    socket.on("data", (chunk: Buffer) => {
      let bytes = chunk;
      if (before) {
        before = Buffer.concat([before, chunk]);
        if (before.length < ATTACH_BYTES) return;
        const nonce = before.subarray(32, ATTACH_BYTES);
        if (!before.subarray(0, ATTACH_BYTES).equals(attachRecord(KEY, nonce))) throw new Error("no attach record");
        socket.write(attachedRecord(nonce));
        this.send(T.HELLO, 0, new Writer().u32(this.#protocol).str("fake").str("6.1").u32(1).u64(1n).done());
        bytes = before.subarray(ATTACH_BYTES);
        before = undefined;
      }
      for (const frame of decoder.push(bytes)) this.#take({ ...frame, payload: Buffer.from(frame.payload) });
    });
  }

  #take(frame: Frame): void {
    this.received.push(frame);
    if (frame.type === T.CREDIT) {
      const reader = new Reader(frame.payload);
      reader.u8();
      this.#credit.set(frame.stream, (this.#credit.get(frame.stream) ?? WINDOW) + reader.u32());
      this.#onCredit?.();
    }
    if (frame.type === T.PING) this.send(T.RESULT, frame.stream);
    else this.#behave(this, frame);
  }
}

/** The control message in a DATA frame */
export function messageIn(frame: Frame): { op: string; id: number; code?: string } | undefined {
  if (frame.type !== T.DATA || frame.payload[0] !== CHANNEL.control) return undefined;
  const text = frame.payload.subarray(1).toString().trim();
  return text === "" ? undefined : (JSON.parse(text) as { op: string; id: number; code?: string });
}

/** Advances the mocked clock until the promise is settled: the code under test may set its timer later */
export async function ticking<V>(t: TestContext, promise: Promise<V>): Promise<V> {
  let isOver = false;
  const settled = promise.finally(() => (isOver = true));
  settled.catch(() => undefined); // the caller handles the rejection
  await until(() => {
    t.mock.timers.tick(30_000);
    return isOver;
  });
  return settled;
}

/** Records unhandled rejections; the returned function checks that there were none, for after() */
export function watchUnhandled(): () => Promise<void> {
  const unhandled: unknown[] = [];
  const note = (error: unknown): void => void unhandled.push(error);
  process.on("unhandledRejection", note);
  return async () => {
    // Node reports unhandled rejections at the end of a turn of the event loop.
    await nextTurn();
    await nextTurn();
    process.off("unhandledRejection", note);
    assert.deepEqual(unhandled, []);
  };
}
