// Files of the guest, in and out, of any size, a chunk at a time.

import { ForkdError } from "../errors.ts";
import { CodecError, Writer } from "./codec.ts";
import { throwIfCancelled, within, type AgentConnection } from "./connection.ts";
import { GrowingBuffer } from "./growing-buffer.ts";
import { CHANNEL, T } from "./protocol.ts";
import { AgentError } from "./stream.ts";

const TO_THE_END = 2n ** 64n - 1n;
const FLAG_APPEND = 1;
const FLAG_ATOMIC = 2;
const FLAG_PARENTS = 4;
const MAX_WHOLE_FILE = 256 * 1024 * 1024;

export type FileInfo = {
  kind: "file" | "directory" | "symlink" | "char" | "block" | "fifo" | "socket";
  mode: number;
  uid: number;
  gid: number;
  size: number;
  mtimeMs: number;
};

const KINDS = { f: "file", d: "directory", l: "symlink", c: "char", b: "block", p: "fifo", s: "socket" } as const;

export type ReadOptions = { maxBytes?: number };

export type WriteOptions = { mode?: number; append?: boolean; parents?: boolean; signal?: AbortSignal };

/** The file's content in chunks; the guest waits while the reader does */
export async function* readFileChunks(
  agent: AgentConnection,
  path: string,
  range: { offset?: number; length?: number } = {},
): AsyncGenerator<Buffer> {
  const chunks: { bytes: Buffer; taken: () => void }[] = [];
  let wake: (() => void) | undefined;
  const payload = new Writer()
    .str(path)
    .u64(BigInt(range.offset ?? 0))
    .u64(range.length === undefined ? TO_THE_END : BigInt(range.length))
    .done();
  const stream = agent.open(T.READ, payload, async (channel, bytes) => {
    if (channel !== CHANNEL.stdin) return;
    const taken = Promise.withResolvers<void>();
    chunks.push({ bytes, taken: taken.resolve });
    wake?.();
    await taken.promise;
  });
  let done = false;
  const ended = stream.end().finally(() => {
    done = true;
    wake?.();
  });
  ended.catch(() => undefined); // awaited below, after the chunks that came before it
  try {
    while (true) {
      const chunk = chunks.shift();
      if (chunk) {
        yield chunk.bytes;
        chunk.taken();
      } else if (done) {
        await fileCall(path, "read", ended);
        return;
      } else {
        await new Promise<void>((resolve) => (wake = resolve));
        wake = undefined;
      }
    }
  } finally {
    stream.cancel();
  }
}

/** The whole file; FILE_FAILED when it is larger than `maxBytes` (256 MiB) */
export async function readFile(agent: AgentConnection, path: string, opts: ReadOptions = {}): Promise<Buffer> {
  const most = opts.maxBytes ?? MAX_WHOLE_FILE;
  const content = new GrowingBuffer();
  for await (const chunk of readFileChunks(agent, path)) {
    if (!content.add(chunk, most))
      throw new ForkdError("FILE_FAILED", `Cannot read ${JSON.stringify(path)} in the guest: it has more than ${most} bytes.`, {
        hint: "Read it a chunk at a time with readFileChunks, or raise maxBytes.",
      });
  }
  return content.bytes();
}

/** Writes a file; unless appending it appears whole or not at all */
export async function writeFile(
  agent: AgentConnection,
  path: string,
  content: string | Uint8Array | AsyncIterable<Uint8Array>,
  opts: WriteOptions = {},
): Promise<number> {
  const flags = (opts.append ? FLAG_APPEND : FLAG_ATOMIC) | (opts.parents === false ? 0 : FLAG_PARENTS);
  const stream = agent.open(
    T.WRITE,
    new Writer()
      .str(path)
      .u32(opts.mode ?? 0o644)
      .u8(flags)
      .done(),
  );
  const send = async (): Promise<number> => {
    for await (const chunk of typeof content === "string" ? [Buffer.from(content)] : content instanceof Uint8Array ? [content] : content) {
      throwIfCancelled(opts.signal);
      await stream.write(CHANNEL.stdin, chunk);
    }
    stream.eof(CHANNEL.stdin);
    return Number((await stream.result()).u64());
  };
  try {
    const sending = within(send(), 0, opts.signal, () => new Error("unreachable: no time-out was asked for"));
    return await fileCall(path, "write", sending);
  } finally {
    stream.cancel();
  }
}

export async function statFile(agent: AgentConnection, path: string, timeoutMs: number): Promise<FileInfo> {
  const reader = await fileCall(path, "look at", agent.call(T.STAT, new Writer().str(path).done(), { timeoutMs }));
  const letter = String.fromCharCode(reader.u8());
  if (!isKind(letter)) throw new CodecError(`a file of kind ${JSON.stringify(letter)}`);
  return {
    kind: KINDS[letter],
    mode: reader.u32(),
    uid: reader.u32(),
    gid: reader.u32(),
    size: Number(reader.u64()),
    mtimeMs: Number(reader.i64() / 1_000_000n),
  };
}

function isKind(letter: string): letter is keyof typeof KINDS {
  return Object.hasOwn(KINDS, letter);
}

async function fileCall<V>(path: string, verb: string, call: Promise<V>): Promise<V> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof AgentError)
      throw new ForkdError("FILE_FAILED", `Cannot ${verb} ${JSON.stringify(path)} in the guest: ${error.message}.`, { cause: error });
    throw error;
  }
}
