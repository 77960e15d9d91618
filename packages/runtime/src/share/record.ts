// Records between agent and host about a share, inside the DATA of its stream (spec/agent-protocol.md).

import { constants } from "node:os";
import { CodecError, Reader, Writer } from "../util/codec.ts";

/** A header, and a path of 4096 bytes */
const LARGEST_QUESTION = 33 + 4096;
const OPS = { 1: "stat", 2: "list", 3: "read", 4: "link" } as const;
const ATTRIBUTES_BYTES = 56;
/** Position in the list, attributes, length of the name */
export const ENTRY_BYTES: number = 8 + ATTRIBUTES_BYTES + 4;

/** Self-contained: it refers to no earlier request */
export type Question = {
  id: bigint;
  op: (typeof OPS)[keyof typeof OPS];
  /** inode of the expected file; 0: any */
  inode: bigint;
  offset: bigint;
  size: number;
  path: Buffer;
};

/** Of a file, a folder or a link; times in ns */
export type Attributes = {
  inode: bigint;
  size: bigint;
  blocks: bigint;
  accessed: bigint;
  modified: bigint;
  changed: bigint;
  /** including the file type */
  mode: number;
  links: number;
};

export type Entry = {
  /** position at which the list continues */
  next: number;
  name: Buffer;
  attributes: Attributes;
};

/** A system call error, by the name of its errno */
export class Errno extends Error {
  readonly errno: number;

  constructor(name: keyof typeof constants.errno) {
    super(name);
    this.errno = constants.errno[name];
  }
}

/** Splits received bytes into requests */
export class Questions {
  #pending: Buffer = Buffer.alloc(0);

  /** Throws CodecError for a malformed request */
  push(bytes: Buffer): Question[] {
    let data = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    const questions: Question[] = [];
    while (data.length >= 4) {
      const length = data.readUInt32LE(0);
      if (length > LARGEST_QUESTION) throw new CodecError(`a share request of ${length} bytes`);
      if (data.length < 4 + length) break;
      questions.push(questionIn(data.subarray(4, 4 + length)));
      data = data.subarray(4 + length);
    }
    // a copy: a slice would keep the complete chunk of the channel in memory
    this.#pending = Buffer.from(data);
    return questions;
  }
}

export function answerRecord(id: bigint, errno: number, body: Uint8Array): Buffer {
  const head = Buffer.allocUnsafe(16);
  head.writeUInt32LE(12 + body.length, 0);
  head.writeBigUInt64LE(id, 4);
  head.writeUInt32LE(errno, 12);
  return Buffer.concat([head, body]);
}

export function attributesBody(attributes: Attributes): Buffer {
  return writeAttributes(new Writer(), attributes).done();
}

export function entriesBody(entries: readonly Entry[], complete: boolean): Buffer {
  const writer = new Writer().u8(complete ? 1 : 0);
  for (const { next, name, attributes } of entries) writeAttributes(writer.u64(BigInt(next)), attributes).bytes(name);
  return writer.done();
}

function writeAttributes(writer: Writer, attributes: Attributes): Writer {
  const { inode, size, blocks, accessed, modified, changed, mode, links } = attributes;
  return writer.u64(inode).u64(size).u64(blocks).i64(accessed).i64(modified).i64(changed).u32(mode).u32(links);
}

function questionIn(record: Buffer): Question {
  const reader = new Reader(record);
  const id = reader.u64();
  const op = OPS[reader.u8() as keyof typeof OPS];
  if (op === undefined) throw new CodecError("an unknown share request");
  return { id, op, inode: reader.u64(), offset: reader.u64(), size: reader.u32(), path: Buffer.from(reader.bytes()) };
}
