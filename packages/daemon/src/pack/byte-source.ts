// Takes exact amounts out of a stream of pieces.

import { corrupt } from "./compress.ts";

export class ByteSource {
  readonly #pieces: AsyncIterator<Uint8Array>;
  #piece: Buffer = Buffer.alloc(0);

  constructor(pieces: AsyncIterable<Uint8Array>) {
    this.#pieces = pieces[Symbol.asyncIterator]();
  }

  /** Exactly so many bytes; throws PACK_CORRUPT when there are less */
  async take(size: number): Promise<Buffer> {
    if (this.#piece.length >= size) return this.#cut(size);
    const parts: Buffer[] = [];
    for (let left = size; left > 0;) {
      const part = await this.some(left);
      parts.push(part);
      left -= part.length;
    }
    return Buffer.concat(parts, size);
  }

  /** At least one byte, at most so many */
  async some(limit: number): Promise<Buffer> {
    if (!(await this.#fill())) throw corrupt("it ends too early");
    return this.#cut(Math.min(limit, this.#piece.length));
  }

  async isAtEnd(): Promise<boolean> {
    return !(await this.#fill());
  }

  async close(): Promise<void> {
    await this.#pieces.return?.();
  }

  #cut(size: number): Buffer {
    const part = this.#piece.subarray(0, size);
    this.#piece = this.#piece.subarray(size);
    return part;
  }

  async #fill(): Promise<boolean> {
    while (this.#piece.length === 0) {
      const next = await this.#pieces.next();
      if (next.done) return false;
      const { buffer, byteOffset, byteLength } = next.value;
      this.#piece = Buffer.from(buffer, byteOffset, byteLength);
    }
    return true;
  }
}
