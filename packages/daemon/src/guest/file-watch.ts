// What changes in a folder of the guest.

import { CodecError, Reader } from "./codec.ts";
import type { AgentConnection } from "./connection.ts";
import { deed } from "./file-error.ts";
import type { FileOptions } from "./files.ts";
import { pathBytes, pathText } from "./guest-path.ts";
import { toolOutput } from "./tool.ts";

/** A record holds two paths */
const MAX_RECORD = 64 * 1024;

const TYPES = { c: "created", m: "modified", a: "attributes", d: "removed", v: "moved", o: "overflow" } as const;

export type FileChange =
  | { type: "ready" }
  /** events were lost: look again at all of it */
  | { type: "overflow" }
  | { type: "created" | "modified" | "attributes" | "removed"; path: string; directory: boolean }
  | { type: "moved"; path: string; directory: boolean; from: string };

export type WatchOptions = FileOptions & {
  recursive: boolean;
  /** changes are gathered for so long, and repeated ones told once */
  debounceMs: number;
};

/** First `ready`, then every change; ends when the path itself is gone */
export async function* watchFiles(agent: AgentConnection, path: string, opts: WatchOptions): AsyncGenerator<FileChange> {
  const { recursive, debounceMs, user, signal } = opts;
  const argv = ["watch", pathBytes(path), String(debounceMs), ...(recursive ? ["--recursive"] : [])];
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of toolOutput(agent, { what: deed("watch", path), argv, user, signal })) {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    for (;;) {
      const length = recordLength(rest);
      if (length === undefined) break;
      const record = rest.subarray(0, length);
      rest = rest.subarray(length);
      yield readChange(record);
    }
    // the chunk's memory belongs to the connection
    rest = Buffer.from(rest);
  }
}

/** undefined: it is not all there yet */
function recordLength(bytes: Buffer): number | undefined {
  if (bytes[0] === 0x52) return 1;
  let at = 2;
  for (let paths = 0; paths < 2; paths++) {
    if (bytes.length < at + 4) return undefined;
    at += 4 + bytes.readUInt32LE(at);
    if (at > MAX_RECORD) throw new CodecError(`a change of more than ${MAX_RECORD} bytes`);
  }
  return bytes.length < at ? undefined : at;
}

function readChange(record: Buffer): FileChange {
  const reader = new Reader(record);
  const letter = String.fromCharCode(reader.u8());
  if (letter === "R") return { type: "ready" };
  const type = Object.hasOwn(TYPES, letter) ? TYPES[letter as keyof typeof TYPES] : undefined;
  if (type === undefined) throw new CodecError(`a change of type ${JSON.stringify(letter)}`);
  const directory = reader.u8() === 1;
  const path = pathText(reader.bytes());
  const from = pathText(reader.bytes());
  if (type === "overflow") return { type };
  return type === "moved" ? { type, path, directory, from } : { type, path, directory };
}
