// Frames of the agent protocol. The contract is spec/agent-protocol.md.

import { CodecError } from "./codec.ts";

export const PROTOCOL_VERSION = 2;
export const MAX_PAYLOAD = 65536;
export const WINDOW = 262144;
/** of connections that the agent opens: there may be many of them */
export const DIAL_WINDOW = 65536;
/** streams that the agent opens have numbers from here on */
export const FIRST_OF_AGENT = 0x80000000;
export const HEADER_BYTES = 12;
const MARK = 0x6b66;
const ATTACH_MAGIC = Buffer.from("forkd-attach/1\r\n");
const ATTACHED_MAGIC = Buffer.from("forkd-attached\r\n");

export const T = {
  HELLO: 0x01,
  PING: 0x02,
  RESULT: 0x03,
  ERROR: 0x04,
  CREDIT: 0x05,
  DATA: 0x06,
  EOF: 0x07,
  CANCEL: 0x08,
  EXEC: 0x10,
  STARTED: 0x11,
  EXIT: 0x12,
  SIGNAL: 0x13,
  ATTACH: 0x14,
  LIST: 0x15,
  RESIZE: 0x16,
  TOOL: 0x18,
  READ: 0x20,
  WRITE: 0x21,
  STAT: 0x22,
  MKDIR: 0x24,
  MOVE: 0x25,
  REMOVE: 0x26,
  CHMOD: 0x27,
  CHOWN: 0x28,
  SYMLINK: 0x29,
  RESYNC: 0x30,
  CLOCK: 0x31,
  POWEROFF: 0x32,
  REGIONS: 0x33,
  CONNECT: 0x40,
  OPENED: 0x41,
  DIAL: 0x42,
  RESOLVE: 0x43,
  NETWORK: 0x44,
  LISTENERS: 0x45,
  MOUNT: 0x50,
  UNMOUNT: 0x51,
} as const;

export const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, control: 3 } as const;

export type Frame = { type: number; stream: number; payload: Buffer };

export function encodeFrame(type: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payload.length);
  writeHeader(frame, type, stream, payload.length);
  frame.set(payload, HEADER_BYTES);
  return frame;
}

/** What comes before the bytes of a DATA frame, so that they need not be copied into one */
export function encodeDataHead(stream: number, channel: number, length: number): Buffer {
  const head = Buffer.allocUnsafe(HEADER_BYTES + 1);
  writeHeader(head, T.DATA, stream, length + 1);
  head.writeUInt8(channel, HEADER_BYTES);
  return head;
}

function writeHeader(into: Buffer, type: number, stream: number, length: number): void {
  if (length > MAX_PAYLOAD) throw new CodecError(`payload of ${length} bytes is over the limit of ${MAX_PAYLOAD}`);
  into.writeUInt32LE(length, 0);
  into.writeUInt8(type, 4);
  into.writeUInt8(0, 5);
  into.writeUInt16LE(MARK, 6);
  into.writeUInt32LE(stream, 8);
}

/** The record that begins every connection, host side */
export function attachRecord(key: Buffer, nonce: Buffer): Buffer {
  return Buffer.concat([ATTACH_MAGIC, key, nonce]);
}

/** What the agent answers to an attach record */
export function attachedRecord(nonce: Buffer): Buffer {
  return Buffer.concat([ATTACHED_MAGIC, nonce]);
}

/** Turns received bytes into frames; first skips everything up to the agent's answer to our attach record */
export class FrameDecoder {
  /** what is left of a search or of a header */
  #pending: Buffer = Buffer.alloc(0);
  #awaited: Buffer | undefined;
  /** a frame whose payload is not all there yet */
  #partial: { frame: Frame; filled: number } | undefined;

  /** @param awaited the answer to wait for; without it decoding starts at once */
  constructor(awaited?: Buffer) {
    this.#awaited = awaited;
  }

  /** Frames completed by these bytes; throws CodecError when synchronisation is lost */
  push(chunk: Buffer): Frame[] {
    const frames: Frame[] = [];
    let data = this.#fill(chunk, frames);
    if (this.#pending.length > 0) data = Buffer.concat([this.#pending, data]);
    if (this.#awaited) {
      const at = data.indexOf(this.#awaited);
      if (at < 0) {
        this.#pending = Buffer.from(data.subarray(Math.max(0, data.length - this.#awaited.length + 1)));
        return [];
      }
      data = data.subarray(at + this.#awaited.length);
      this.#awaited = undefined;
    }
    while (data.length >= HEADER_BYTES) {
      const length = data.readUInt32LE(0);
      if (length > MAX_PAYLOAD || data.readUInt8(5) !== 0 || data.readUInt16LE(6) !== MARK) {
        throw new CodecError("lost synchronisation with the agent");
      }
      const head = { type: data.readUInt8(4), stream: data.readUInt32LE(8) };
      const rest = data.subarray(HEADER_BYTES);
      if (rest.length < length) {
        // most payloads come in several pieces: each byte is copied once, however many there are
        const payload = Buffer.allocUnsafe(length);
        this.#partial = { frame: { ...head, payload }, filled: rest.copy(payload) };
        data = rest.subarray(rest.length);
        break;
      }
      frames.push({ ...head, payload: rest.subarray(0, length) });
      data = rest.subarray(length);
    }
    // what is kept must not keep all of what it came with
    this.#pending = Buffer.from(data);
    return frames;
  }

  /** What of a chunk comes after the frame that was begun before */
  #fill(chunk: Buffer, frames: Frame[]): Buffer {
    if (!this.#partial) return chunk;
    const { frame, filled } = this.#partial;
    const copied = chunk.copy(frame.payload, filled);
    this.#partial.filled += copied;
    if (this.#partial.filled === frame.payload.length) {
      frames.push(frame);
      this.#partial = undefined;
    }
    return chunk.subarray(copied);
  }
}
