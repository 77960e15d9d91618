// DATA and EOF frames that wait for their consumer, in one block of memory: a frame of one byte costs a few bytes, not an object.

import { MAX_PAYLOAD } from "./protocol.ts";

const FIRST_BLOCK = 4096;
/** u8 channel, u32 length */
const HEAD_BYTES = 5;
/** in place of the length: end of the channel */
const END = 0xffffffff;

/** Without bytes: end of the channel */
export type Waiting = { channel: number; bytes: Buffer | undefined };

export class Backlog {
  #block: Buffer = Buffer.alloc(0);
  #length = 0;
  /** start of the last record; further bytes of its channel are appended to it */
  #last: number | undefined;

  get isEmpty(): boolean {
    return this.#length === 0;
  }

  add(channel: number, bytes: Buffer): void {
    const last = this.#last;
    const joined = last !== undefined && this.#block[last] === channel ? this.#block.readUInt32LE(last + 1) + bytes.length : Infinity;
    if (last === undefined || joined > MAX_PAYLOAD) {
      this.#last = this.#head(channel, bytes.length);
    } else {
      this.#reserve(bytes.length);
      this.#block.writeUInt32LE(joined, last + 1);
    }
    bytes.copy(this.#block, this.#length);
    this.#length += bytes.length;
  }

  end(channel: number): void {
    this.#head(channel, END);
    this.#last = undefined;
  }

  /** All records so far, in order; records that arrive during the call are left for the next one */
  *take(): Generator<Waiting> {
    const all = this.#block.subarray(0, this.#length);
    this.clear();
    for (let at = 0; at < all.length;) {
      const channel = all.readUInt8(at);
      const length = all.readUInt32LE(at + 1);
      at += HEAD_BYTES;
      if (length === END) {
        yield { channel, bytes: undefined };
        continue;
      }
      yield { channel, bytes: all.subarray(at, at + length) };
      at += length;
    }
  }

  clear(): void {
    this.#block = Buffer.alloc(0);
    this.#length = 0;
    this.#last = undefined;
  }

  #head(channel: number, length: number): number {
    this.#reserve(HEAD_BYTES + (length === END ? 0 : length));
    const at = this.#length;
    this.#block.writeUInt8(channel, at);
    this.#block.writeUInt32LE(length, at + 1);
    this.#length += HEAD_BYTES;
    return at;
  }

  #reserve(bytes: number): void {
    const needed = this.#length + bytes;
    if (needed <= this.#block.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(FIRST_BLOCK, needed, 2 * this.#block.length));
    this.#block.copy(larger, 0, 0, this.#length);
    this.#block = larger;
  }
}
