// Bytes that come in pieces, kept in few blocks: a guest that sends them one by one must not cost an object for each.

const FIRST_BLOCK = 4096;
const LARGEST_BLOCK = 1024 * 1024;

export class GrowingBuffer {
  readonly #blocks: Buffer[] = [];
  #length = 0;
  /** bytes left in the last block */
  #room = 0;

  get length(): number {
    return this.#length;
  }

  /** Adds as many of the bytes as stay below `most` in all; false when that was not every one */
  add(bytes: Buffer, most: number): boolean {
    let rest = bytes.subarray(0, Math.max(0, most - this.#length));
    const whole = rest.length === bytes.length;
    while (rest.length > 0) {
      if (this.#room === 0) {
        this.#room = Math.min(LARGEST_BLOCK, Math.max(FIRST_BLOCK, this.#length, rest.length));
        this.#blocks.push(Buffer.allocUnsafe(this.#room));
      }
      const block = this.#blocks.at(-1)!;
      const copied = rest.copy(block, block.length - this.#room);
      this.#room -= copied;
      this.#length += copied;
      rest = rest.subarray(copied);
    }
    return whole;
  }

  /** Everything so far, in a buffer of its own */
  bytes(): Buffer {
    return Buffer.concat(this.#blocks, this.#length);
  }

  clear(): void {
    this.#blocks.length = 0;
    this.#length = 0;
    this.#room = 0;
  }
}

/** The last bytes of an output, for error messages */
export class OutputTail {
  #tail: Buffer = Buffer.alloc(0);
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  add(bytes: Buffer): void {
    this.#tail = Buffer.concat([this.#tail, bytes.subarray(-this.#most)]).subarray(-this.#most);
  }

  toString(): string {
    return this.#tail.toString();
  }
}
