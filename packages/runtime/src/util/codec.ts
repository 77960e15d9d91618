// Little-endian encoder and decoder for frame payloads.

import { ForkdError } from "../errors.ts";

/** A payload that ends before its fields do, or has an impossible length */
export class CodecError extends ForkdError {
  constructor(message: string) {
    super("AGENT_PROTOCOL", `Malformed message: ${message}.`);
  }
}

export class Writer {
  #parts: Buffer[] = [];

  u8(value: number): this {
    this.#parts.push(Buffer.of(value));
    return this;
  }

  u16(value: number): this {
    const part = Buffer.allocUnsafe(2);
    part.writeUInt16LE(value);
    this.#parts.push(part);
    return this;
  }

  u32(value: number): this {
    const part = Buffer.allocUnsafe(4);
    part.writeUInt32LE(value);
    this.#parts.push(part);
    return this;
  }

  i32(value: number): this {
    const part = Buffer.allocUnsafe(4);
    part.writeInt32LE(value);
    this.#parts.push(part);
    return this;
  }

  u64(value: bigint): this {
    const part = Buffer.allocUnsafe(8);
    part.writeBigUInt64LE(value);
    this.#parts.push(part);
    return this;
  }

  i64(value: bigint): this {
    const part = Buffer.allocUnsafe(8);
    part.writeBigInt64LE(value);
    this.#parts.push(part);
    return this;
  }

  bytes(value: Uint8Array): this {
    this.u32(value.length);
    this.#parts.push(Buffer.from(value.buffer, value.byteOffset, value.length));
    return this;
  }

  str(value: string): this {
    return this.bytes(Buffer.from(value, "utf8"));
  }

  list<T>(items: readonly T[], write: (writer: this, item: T) => void): this {
    this.u32(items.length);
    for (const item of items) write(this, item);
    return this;
  }

  map(entries: Readonly<Record<string, string>>): this {
    return this.list(Object.entries(entries), (writer, [key, value]) => void writer.str(key).str(value));
  }

  done(): Buffer {
    return this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts);
  }
}

export class Reader {
  #at = 0;
  readonly #buffer: Buffer;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  /** Length of the complete payload */
  get size(): number {
    return this.#buffer.length;
  }

  #take(length: number): number {
    const at = this.#at;
    if (length > this.#buffer.length - at)
      throw new CodecError(`payload ends after ${this.#buffer.length} bytes, field needs ${length} at ${at}`);
    this.#at = at + length;
    return at;
  }

  u8(): number {
    return this.#buffer.readUInt8(this.#take(1));
  }

  u16(): number {
    return this.#buffer.readUInt16LE(this.#take(2));
  }

  u32(): number {
    return this.#buffer.readUInt32LE(this.#take(4));
  }

  i32(): number {
    return this.#buffer.readInt32LE(this.#take(4));
  }

  u64(): bigint {
    return this.#buffer.readBigUInt64LE(this.#take(8));
  }

  /** A u64 that a number of JavaScript can hold: counts, offsets, ids */
  count(): number {
    const value = this.u64();
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new CodecError(`${value} where there can be no such count`);
    return Number(value);
  }

  i64(): bigint {
    return this.#buffer.readBigInt64LE(this.#take(8));
  }

  bytes(): Buffer {
    const length = this.u32();
    const at = this.#take(length);
    return this.#buffer.subarray(at, at + length);
  }

  str(): string {
    return this.bytes().toString("utf8");
  }

  /** @param most upper bound for the count, for items that take much more memory than bytes on the wire */
  list<T>(read: (reader: this) => T, most = Infinity): T[] {
    const count = this.u32();
    if (count > most) throw new CodecError(`list of ${count} items where ${most} are the most`);
    // Each item takes at least one byte, so a count larger than the rest is invalid.
    if (count > this.#buffer.length - this.#at) throw new CodecError(`list of ${count} items in ${this.#buffer.length - this.#at} bytes`);
    const items: T[] = [];
    for (let i = 0; i < count; i++) items.push(read(this));
    return items;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#buffer.length;
  }

  /** The bytes up to the end of the payload */
  rest(): Buffer {
    const at = this.#at;
    this.#at = this.#buffer.length;
    return this.#buffer.subarray(at);
  }
}
