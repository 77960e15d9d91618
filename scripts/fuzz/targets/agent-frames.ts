// Fuzz target: frames and streams that a guest sends on the agent's channel.

import assert from "node:assert/strict";
import { CodecError } from "@forkd/runtime/util/codec";
import {
  attachedRecord,
  channelsOf,
  encodeFrame,
  FrameDecoder,
  MAX_PAYLOAD,
  T,
  WINDOW,
  type Frame,
} from "@forkd/runtime/agent/wire/protocol";
import { AgentStream } from "@forkd/runtime/agent/wire/stream";
import { declared, piecesOf, type Target } from "../target.ts";

const NONCE = Buffer.from("0123456789abcdef");
const ANSWER = attachedRecord(NONCE);
const MARK = Buffer.from("fk");

export const target: Target = {
  sources: [
    "packages/runtime/src/agent/wire/protocol.ts",
    "packages/runtime/src/util/codec.ts",
    "packages/runtime/src/agent/wire/stream.ts",
  ],
  tokens: [
    ANSWER,
    MARK,
    ...Object.values(T).map((type) => encodeFrame(type, 1)),
    encodeFrame(T.DATA, 1, Buffer.of(1, 0x61)),
    encodeFrame(T.DATA, 2, Buffer.of(0, 0x61)),
    encodeFrame(T.EOF, 2, Buffer.of(0)),
    encodeFrame(T.CREDIT, 1, Buffer.of(0, 1, 0, 0, 0)),
    Buffer.from([0, 0, 1, 0]),
  ],
  maxBytes: 20_000,
  run: (input) => {
    const whole = decode([input]);
    assert.equal(shown(decode(piecesOf(input))), shown(whole), "the same bytes in pieces are not the same frames");
    const again = decode([Buffer.concat([ANSWER, ...whole.frames.map(({ type, stream, payload }) => encodeFrame(type, stream, payload))])]);
    assert.equal(shown(again), shown({ ...whole, problem: "" }), "frames that are encoded again are not the same");
    return `${whole.problem} ${whole.frames.length > 0} ${deliver(whole.frames)}`;
  },
};

/** Text form for comparison: comparing objects would take most of the time */
function shown({ frames, problem }: { frames: readonly Frame[]; problem: string }): string {
  return frames.map(({ type, stream, payload }) => `${type} ${stream} ${payload.toString("latin1")}`).join("\n") + problem;
}

function decode(pieces: readonly Buffer[]): { frames: Frame[]; problem: string } {
  const decoder = new FrameDecoder(ANSWER);
  const frames: Frame[] = [];
  try {
    for (const piece of pieces) frames.push(...decoder.push(piece));
    return { frames, problem: "" };
  } catch (error) {
    // a push returns all of its frames or none, so only the frames before the error can be compared
    return { frames: decodedBefore(pieces), problem: declared(error, ["AGENT_PROTOCOL"]) };
  } finally {
    for (const { payload } of frames) assert.ok(payload.length <= MAX_PAYLOAD);
  }
}

/** Frames before the byte at which the decoder fails */
function decodedBefore(pieces: readonly Buffer[]): Frame[] {
  const decoder = new FrameDecoder(ANSWER);
  const frames: Frame[] = [];
  const bytes = Buffer.concat(pieces);
  try {
    for (let at = 0; at < bytes.length; at++) frames.push(...decoder.push(bytes.subarray(at, at + 1)));
  } catch (error) {
    if (!(error instanceof CodecError)) throw error;
  }
  return frames;
}

/** Delivers the frames to streams of three request types, and checks that they pass on exactly the allowed data */
function deliver(frames: readonly Frame[]): string {
  const kinds: Record<number, number> = { 1: T.EXEC, 2: T.CONNECT, 3: T.READ };
  const outcomes: string[] = [];
  for (const [number, type] of Object.entries(kinds)) {
    const given = new Map<number, number>();
    const taken = new Map<number, number>();
    let credit = 0;
    const stream = new AgentStream({
      channels: channelsOf(type),
      send: (kind, payload) => {
        if (kind === T.CREDIT) credit += payload.readUInt32LE(1);
      },
      sendData: () => undefined,
      drained: () => undefined,
      onData: (channel, bytes) => void taken.set(channel, (taken.get(channel) ?? 0) + bytes.length),
      onEnd: () => undefined,
    });
    let outcome = "open";
    for (const frame of frames.filter((one) => one.stream === Number(number))) {
      if (stream.isOver) break;
      try {
        stream.receive(frame);
      } catch (error) {
        outcome = declared(error, ["AGENT_PROTOCOL"]);
        break;
      }
      const [channel] = frame.payload;
      if (frame.type === T.DATA && channel !== undefined) given.set(channel, (given.get(channel) ?? 0) + frame.payload.length - 1);
    }
    assert.deepEqual(taken, new Map([...given].filter(([, bytes]) => bytes > 0)), "a stream hands on other bytes than it was given");
    for (const bytes of taken.values()) assert.ok(bytes <= WINDOW + credit, "a stream takes more than it gave credit for");
    outcomes.push(`${outcome} ${taken.size} ${stream.isOver}`);
  }
  return outcomes.join(" | ");
}
