// Frames of the agent protocol. The contract is spec/agent-protocol.md.

import { CodecError } from "../../util/codec.ts";

export const PROTOCOL_VERSION = 2;
export const MAX_PAYLOAD = 65536;
export const WINDOW = 262144;
/** window of connections that the agent opens: there may be many */
export const DIAL_WINDOW = 65536;
/** first id of streams that the agent opens */
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
  HOLD: 0x34,
  METRICS: 0x35,
  CONNECT: 0x40,
  OPENED: 0x41,
  DIAL: 0x42,
  RESOLVE: 0x43,
  NETWORK: 0x44,
  LISTENERS: 0x45,
  MOUNT: 0x50,
  UNMOUNT: 0x51,
} as const;

/** Offset of an ATTACH that asks for output from now on */
export const FROM_NOW: bigint = 2n ** 64n - 1n;

export const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, control: 3 } as const;

const PROCESS = { data: [CHANNEL.stdout, CHANNEL.stderr, CHANNEL.control], eof: [CHANNEL.stdin] };
const CONNECTION = { data: [CHANNEL.stdin], eof: [CHANNEL.stdin] };
const NONE = { data: [], eof: [] };

/** The channels on which the agent sends DATA for this request, and those for which it sends EOF */
export type Channels = { readonly data: readonly number[]; readonly eof: readonly number[] };

const CHANNELS_OF: { readonly [type: number]: Channels | undefined } = {
  [T.EXEC]: PROCESS,
  [T.ATTACH]: PROCESS,
  [T.TOOL]: PROCESS,
  [T.READ]: { data: [CHANNEL.stdin], eof: [] },
  [T.CONNECT]: CONNECTION,
  [T.DIAL]: CONNECTION,
  [T.MOUNT]: { data: [CHANNEL.stdin], eof: [] },
};

export function channelsOf(type: number): Channels {
  return CHANNELS_OF[type] ?? NONE;
}

export type Frame = { type: number; stream: number; payload: Buffer };

export function encodeFrame(type: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payload.length);
  writeHeader(frame, type, stream, payload.length);
  frame.set(payload, HEADER_BYTES);
  return frame;
}

/** Header of a DATA frame; it is sent separately, so that the bytes are not copied */
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

/** The host's record at the begin of a connection */
export function attachRecord(key: Buffer, nonce: Buffer): Buffer {
  return Buffer.concat([ATTACH_MAGIC, key, nonce]);
}

/** The agent's answer to an attach record */
export function attachedRecord(nonce: Buffer): Buffer {
  return Buffer.concat([ATTACHED_MAGIC, nonce]);
}

/** Decodes frames; first skips everything up to the agent's answer to our attach record */
export class FrameDecoder {
  /** rest of an incomplete search or header */
  #pending: Buffer = Buffer.alloc(0);
  #awaited: Buffer | undefined;
  /** a frame with an incomplete payload */
  #partial: { frame: Frame; filled: number } | undefined;

  /** @param awaited the answer to skip to; without it decoding starts at once */
  constructor(awaited?: Buffer) {
    this.#awaited = awaited;
  }

  /** Frames that these bytes complete; throws CodecError when synchronisation is lost */
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
        // Most payloads arrive in several pieces: each byte is copied once, whatever their number.
        const payload = Buffer.allocUnsafe(length);
        this.#partial = { frame: { ...head, payload }, filled: rest.copy(payload) };
        data = rest.subarray(rest.length);
        break;
      }
      frames.push({ ...head, payload: rest.subarray(0, length) });
      data = rest.subarray(length);
    }
    // Copy, because a slice would keep the complete chunk in memory.
    this.#pending = Buffer.from(data);
    return frames;
  }

  /** The rest of a chunk after the frame that was incomplete */
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
