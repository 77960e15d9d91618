// What the agent and the host say to each other about a share: records inside the DATA of its stream (spec/agent-protocol.md).

import { constants } from "node:os";
import { CodecError, Reader, Writer } from "../guest/codec.ts";

/** A head, and a path of 4096 bytes */
const LARGEST_QUESTION = 33 + 4096;
const OPS = { 1: "stat", 2: "list", 3: "read", 4: "link" } as const;
const ATTRIBUTES_BYTES = 56;
/** Its number in the list, its attributes, the length of its name */
export const ENTRY_BYTES: number = 8 + ATTRIBUTES_BYTES + 4;

/** Stands for itself: nothing of an earlier one is needed to answer it */
export type Question = {
  id: bigint;
  op: (typeof OPS)[keyof typeof OPS];
  /** the file that is meant; 0: whatever is there */
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
  /** with the kind of file */
  mode: number;
  links: number;
};

export type Entry = {
  /** where the list goes on after it */
  next: number;
  name: Buffer;
  attributes: Attributes;
};

/** An error of a system call, by the name of its errno */
export class Errno extends Error {
  readonly errno: number;

  constructor(name: keyof typeof constants.errno) {
    super(name);
    this.errno = constants.errno[name];
  }
}

/** Cuts received bytes into questions */
export class Questions {
  #pending: Buffer = Buffer.alloc(0);

  /** Throws CodecError for what is no question */
  push(bytes: Buffer): Question[] {
    let data = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    const questions: Question[] = [];
    while (data.length >= 4) {
      const length = data.readUInt32LE(0);
      if (length > LARGEST_QUESTION) throw new CodecError(`a question of ${length} bytes about a share`);
      if (data.length < 4 + length) break;
      questions.push(questionIn(data.subarray(4, 4 + length)));
      data = data.subarray(4 + length);
    }
    // a copy: what is kept must not keep a whole chunk of the channel alive
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
  if (op === undefined) throw new CodecError("a question about a share that does not exist");
  return { id, op, inode: reader.u64(), offset: reader.u64(), size: reader.u32(), path: Buffer.from(reader.bytes()) };
}
