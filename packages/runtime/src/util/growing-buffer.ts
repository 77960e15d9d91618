// Collects small pieces in a few large blocks: one object per piece would let a guest that sends single bytes use up the daemon's memory.

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

  /** Appends bytes up to `most` in all; false when some did not fit */
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

  /** A copy of all bytes so far */
  bytes(): Buffer {
    return Buffer.concat(this.#blocks, this.#length);
  }

  clear(): void {
    this.#blocks.length = 0;
    this.#length = 0;
    this.#room = 0;
  }
}

/** Keeps the last bytes of an output, for error messages; each byte is copied a few times, whatever the size of the pieces */
export class OutputTail {
  readonly #kept = new GrowingBuffer();
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  add(bytes: Buffer): void {
    const last = bytes.subarray(-this.#most);
    if (this.#kept.length + last.length > 2 * this.#most) {
      const tail = this.#tail();
      this.#kept.clear();
      this.#kept.add(tail, Infinity);
    }
    this.#kept.add(last, Infinity);
  }

  toString(): string {
    return this.#tail().toString();
  }

  #tail(): Buffer {
    return this.#kept.bytes().subarray(-this.#most);
  }
}
