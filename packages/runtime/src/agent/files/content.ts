// Reads and writes files of the guest in chunks, without a size limit; stat.

import { ForkdError } from "../../errors.ts";
import { chunksOf } from "../wire/chunks.ts";
import { CodecError, Writer, type Reader } from "../../util/codec.ts";
import { throwIfCancelled, within } from "../../util/within.ts";
import type { AgentConnection } from "../wire/connection.ts";
import { deed, fileCall, fileError } from "./error.ts";
import { GrowingBuffer } from "../../util/growing-buffer.ts";
import { pathBytes, pathText } from "./path.ts";
import { CHANNEL, T } from "../wire/protocol.ts";
import { AgentError } from "../wire/stream.ts";

const TO_THE_END = 2n ** 64n - 1n;
const FLAG_APPEND = 1;
const FLAG_ATOMIC = 2;
const FLAG_PARENTS = 4;
const FLAG_OFFSET = 8;
const FLAG_FOLLOW = 1;
const MAX_WHOLE_FILE = 256 * 1024 * 1024;

/** Options of every call */
export type FileOptions = {
  /** user whose permissions apply, and who owns new files; default: root */
  user?: string | undefined;
  signal?: AbortSignal | undefined;
};

export type FileInfo = {
  kind: "file" | "directory" | "symlink" | "char" | "block" | "fifo" | "socket";
  mode: number;
  uid: number;
  gid: number;
  size: number;
  mtimeMs: number;
  /** names in the guest; null: the id has none */
  owner: string | null;
  group: string | null;
  /** target of a link */
  target: string | null;
};

const KINDS = { f: "file", d: "directory", l: "symlink", c: "char", b: "block", p: "fifo", s: "socket" } as const;

export type ReadOptions = FileOptions & { offset?: number | undefined; length?: number | undefined };

export type WriteOptions = FileOptions & {
  mode?: number | undefined;
  append?: boolean | undefined;
  /** writes at this offset and keeps the rest of the file */
  offset?: number | undefined;
  parents?: boolean | undefined;
  /** truncates and writes the file itself, so that processes that have it open or watch it see the change; readers can see it incomplete */
  inPlace?: boolean | undefined;
  /** owner of a new file that root writes */
  owner?: { uid: number; gid: number } | undefined;
};

export type FileContent = string | Uint8Array | AsyncIterable<Uint8Array>;

/** The file's content in chunks; the guest waits for a slow reader */
export async function* readFileChunks(agent: AgentConnection, path: string, opts: ReadOptions = {}): AsyncGenerator<Buffer> {
  const payload = new Writer()
    .bytes(pathBytes(path))
    .u64(BigInt(opts.offset ?? 0))
    .u64(opts.length === undefined ? TO_THE_END : BigInt(opts.length))
    .str(opts.user ?? "")
    .done();
  try {
    yield* chunksOf((onData) => agent.open(T.READ, payload, onData), { channel: CHANNEL.stdin, signal: opts.signal });
  } catch (error) {
    if (error instanceof AgentError) throw fileError(deed("read", path), error);
    throw error;
  }
}

/** The complete file; FILE_FAILED when it is larger than `maxBytes` (256 MiB) */
export async function readFile(agent: AgentConnection, path: string, opts: ReadOptions & { maxBytes?: number } = {}): Promise<Buffer> {
  const { maxBytes: most = MAX_WHOLE_FILE, ...rest } = opts;
  const content = new GrowingBuffer();
  for await (const chunk of readFileChunks(agent, path, rest)) {
    if (!content.add(chunk, most))
      throw new ForkdError("FILE_FAILED", `Cannot ${deed("read", path)} in the guest: it has more than ${most} bytes.`, {
        hint: "Read it a chunk at a time with readChunks, or raise maxBytes.",
      });
  }
  return content.bytes();
}

/** `isOwned`: the file is new, and has the given owner */
export type Written = { bytes: number; isOwned: boolean };

/** Writes a file atomically, unless it is appended to, written at an offset or written in place */
export async function writeFile(agent: AgentConnection, path: string, content: FileContent, opts: WriteOptions = {}): Promise<Written> {
  const how = opts.append ? FLAG_APPEND : opts.offset !== undefined ? FLAG_OFFSET : opts.inPlace ? 0 : FLAG_ATOMIC;
  const request = new Writer()
    .bytes(pathBytes(path))
    .u32(opts.mode ?? 0o644)
    .u8(how | (opts.parents === false ? 0 : FLAG_PARENTS))
    .u64(BigInt(opts.offset ?? 0))
    .str(opts.user ?? "");
  if (opts.owner) request.u32(opts.owner.uid).u32(opts.owner.gid);
  const stream = agent.open(T.WRITE, request.done());
  const send = async (): Promise<Written> => {
    for await (const chunk of typeof content === "string" ? [Buffer.from(content)] : content instanceof Uint8Array ? [content] : content) {
      throwIfCancelled(opts.signal);
      await stream.write(CHANNEL.stdin, chunk);
    }
    stream.eof(CHANNEL.stdin);
    const answer = await stream.result();
    // agents of earlier versions have no owner field
    return { bytes: Number(answer.u64()), isOwned: !answer.isAtEnd && answer.u8() === 1 };
  };
  try {
    const sending = within(send(), 0, opts.signal, () => new Error("unreachable: no time-out was asked for"));
    return await fileCall(deed("write", path), sending);
  } finally {
    stream.cancel();
  }
}

/** `follow`: the target of a link instead of the link */
export async function statFile(
  agent: AgentConnection,
  path: string,
  opts: FileOptions & { follow?: boolean; timeoutMs: number },
): Promise<FileInfo> {
  const payload = new Writer()
    .bytes(pathBytes(path))
    .u8(opts.follow ? FLAG_FOLLOW : 0)
    .str(opts.user ?? "")
    .done();
  return readInfo(await fileCall(deed("look at", path), agent.call(T.STAT, payload, opts)));
}

/** The fields of STAT, and of each entry of a listing */
export function readInfo(reader: Reader): FileInfo {
  const letter = String.fromCharCode(reader.u8());
  if (!isKind(letter)) throw new CodecError(`a file of kind ${JSON.stringify(letter)}`);
  const kind = KINDS[letter];
  return {
    kind,
    mode: reader.u32(),
    uid: reader.u32(),
    gid: reader.u32(),
    size: Number(reader.u64()),
    mtimeMs: Number(reader.i64() / 1_000_000n),
    owner: reader.str() || null,
    group: reader.str() || null,
    target: targetOf(reader.bytes(), kind),
  };
}

function targetOf(bytes: Buffer, kind: FileInfo["kind"]): string | null {
  return kind === "symlink" ? pathText(bytes) : null;
}

function isKind(letter: string): letter is keyof typeof KINDS {
  return Object.hasOwn(KINDS, letter);
}
