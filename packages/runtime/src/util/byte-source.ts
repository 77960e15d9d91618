// Takes exact amounts out of a stream of pieces.

export class ByteSource {
  readonly #pieces: AsyncIterator<Uint8Array>;
  readonly #tooShort: () => Error;
  #piece: Buffer = Buffer.alloc(0);
  #offset = 0;

  /** @param tooShort what is thrown where the stream ends before all that was asked for */
  constructor(pieces: AsyncIterable<Uint8Array>, tooShort: () => Error) {
    this.#pieces = pieces[Symbol.asyncIterator]();
    this.#tooShort = tooShort;
  }

  /** How many bytes were taken */
  get offset(): number {
    return this.#offset;
  }

  /** Exactly so many bytes */
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
    if (!(await this.#fill())) throw this.#tooShort();
    return this.#cut(Math.min(limit, this.#piece.length));
  }

  async skip(size: number): Promise<void> {
    for (let left = size; left > 0;) left -= (await this.some(left)).length;
  }

  /** Reads to the end */
  async drain(): Promise<void> {
    while (await this.#fill()) this.#cut(this.#piece.length);
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
    this.#offset += part.length;
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
