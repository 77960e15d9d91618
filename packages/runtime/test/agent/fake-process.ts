// A process as the agent implements it: keeps the newest output, and sends it to one stream at a time as credit allows.

import { Reader, Writer } from "../../src/util/codec.ts";
import { CHANNEL, FROM_NOW, T, WINDOW, type Frame } from "../../src/agent/wire/protocol.ts";
import type { FakeAgent } from "./fake-agent.ts";

const CHANNELS = [CHANNEL.stdout, CHANNEL.stderr] as const;

type Output = { all: Buffer; start: number; sent: number; credit: number };

export class FakeProcess {
  readonly id: number;
  readonly tag: string;
  /** streams that attached to it, in order, with the requested offsets */
  readonly streams: { stream: number; from: [number | "now", number | "now"] }[] = [];
  stdin = "";
  stdinOpen = true;
  /** bytes of stdin that it takes before it waits for the test */
  room = WINDOW;
  /** settles before it answers an ATTACH */
  gate: Promise<void> | undefined;
  signals: number[] = [];
  sizes: [number, number][] = [];
  readonly #agent: FakeAgent;
  readonly #outputs: Record<number, Output> = Object.fromEntries(
    CHANNELS.map((channel) => [channel, { all: Buffer.alloc(0), start: 0, sent: 0, credit: 0 }]),
  );
  #stream: number | undefined;
  #exit: number | undefined;

  constructor(agent: FakeAgent, id: number, tag = "") {
    this.#agent = agent;
    this.id = id;
    this.tag = tag;
  }

  get isAttached(): boolean {
    return this.#stream !== undefined;
  }

  print(text: string, channel: number = CHANNEL.stdout): void {
    const output = this.#of(channel);
    output.all = Buffer.concat([output.all, Buffer.from(text)]);
    this.#pump();
  }

  /** Drops the oldest output, as a full ring does */
  forgetBefore(offset: number, channel: number = CHANNEL.stdout): void {
    this.#of(channel).start = offset;
  }

  exit(code: number): void {
    this.#exit = code;
    this.#pump();
  }

  closeStdin(): void {
    this.stdinOpen = false;
    if (this.#stream !== undefined) this.#agent.send(T.EOF, this.#stream, Buffer.of(CHANNEL.stdin));
  }

  giveStdinCredit(bytes: number): void {
    if (this.#stream !== undefined) this.#agent.send(T.CREDIT, this.#stream, new Writer().u8(CHANNEL.stdin).u32(bytes).done());
  }

  /** EXEC, or ATTACH of this process */
  attach(stream: number, from: readonly [bigint, bigint], again: boolean): void {
    if (this.#stream !== undefined) this.#agent.send(T.ERROR, this.#stream, new Writer().str("taken_over").str("taken over").done());
    this.#stream = stream;
    this.streams.push({ stream, from: [placeOf(from[0]), placeOf(from[1])] });
    const started = new Writer().u64(BigInt(this.id)).u32(100 + this.id);
    for (const [i, channel] of CHANNELS.entries()) {
      const output = this.#of(channel);
      const asked = from[i] === FROM_NOW ? output.all.length : Number(from[i]);
      output.sent = Math.min(Math.max(asked, output.start), output.all.length);
      output.credit = WINDOW;
      started.u64(BigInt(output.sent));
    }
    this.#agent.send(T.STARTED, stream, started.done());
    if (again) this.giveStdinCredit(this.room);
    if (again && !this.stdinOpen) this.closeStdin();
    this.#pump();
  }

  /** Handles a frame for a stream of this process; false when it was for another one */
  take(frame: Frame): boolean {
    if (frame.stream !== this.#stream) return false;
    const reader = new Reader(frame.payload);
    if (frame.type === T.CANCEL) this.#stream = undefined;
    else if (frame.type === T.SIGNAL) this.signals.push(reader.u32());
    else if (frame.type === T.RESIZE) this.sizes.push([reader.u16(), reader.u16()]);
    else if (frame.type === T.EOF) this.stdinOpen = false;
    else if (frame.type === T.DATA) this.stdin += frame.payload.subarray(1).toString();
    else if (frame.type === T.CREDIT) {
      this.#of(reader.u8()).credit += reader.u32();
      this.#pump();
    }
    return true;
  }

  entry(writer: Writer): void {
    const [stdout, stderr] = CHANNELS.map((channel) => BigInt(this.#of(channel).all.length));
    writer
      .u64(BigInt(this.id))
      .u32(100 + this.id)
      .str(this.tag)
      .list(["fake"], (out, arg) => void out.str(arg));
    writer
      .u8(this.#exit === undefined ? 1 : 0)
      .i32(this.#exit ?? 0)
      .u32(0)
      .u8(0)
      .u8(0)
      .u8(this.stdinOpen ? 1 : 0);
    writer
      .i64(1n)
      .str("/")
      .str("root")
      .u64(stdout ?? 0n)
      .u64(stderr ?? 0n);
  }

  #pump(): void {
    if (this.#stream === undefined) return;
    for (const channel of CHANNELS) {
      const output = this.#of(channel);
      while (output.sent < output.all.length && output.credit > 0) {
        const size = Math.min(output.credit, 32_768, output.all.length - output.sent);
        this.#agent.data(this.#stream, channel, output.all.subarray(output.sent, output.sent + size));
        output.sent += size;
        output.credit -= size;
      }
    }
    const isSent = CHANNELS.every((channel) => this.#of(channel).sent === this.#of(channel).all.length);
    if (this.#exit === undefined || !isSent) return;
    this.#agent.exit(this.#stream, this.#exit);
    this.#stream = undefined;
  }

  #of(channel: number): Output {
    return this.#outputs[channel] as Output;
  }
}

/** An agent with these processes; EXEC starts the next one of `startable` */
export function behaveLike(processes: FakeProcess[], startable: FakeProcess[] = []): (agent: FakeAgent, frame: Frame) => void {
  return (agent, frame) => {
    if (processes.some((known) => known.take(frame))) return;
    const reader = new Reader(frame.payload);
    if (frame.type === T.LIST) {
      const after = reader.u64();
      const page = processes.filter(({ id }) => id > after).slice(0, 2);
      const answer = new Writer().list(page, (writer, known) => known.entry(writer));
      const last = page.at(-1)?.id ?? Infinity;
      agent.send(T.RESULT, frame.stream, answer.u8(processes.some(({ id }) => id > last) ? 1 : 0).done());
    } else if (frame.type === T.EXEC) {
      const started = startable.shift();
      if (!started) return agent.send(T.ERROR, frame.stream, new Writer().str("ENOENT").str("no such program").done());
      processes.push(started);
      started.attach(frame.stream, [0n, 0n], false);
    } else if (frame.type === T.ATTACH) {
      const id = Number(reader.u64());
      reader.str();
      const found = processes.find((known) => known.id === id);
      const from = [reader.u64(), reader.u64()] as const;
      if (found?.gate) void found.gate.then(() => found.attach(frame.stream, from, true));
      else if (found) found.attach(frame.stream, from, true);
      else agent.send(T.ERROR, frame.stream, new Writer().str("no_such_process").str("no such process").done());
    }
  };
}

function placeOf(from: bigint): number | "now" {
  return from === FROM_NOW ? "now" : Number(from);
}
