// Watches a folder of the guest for changes.

import { CodecError, Reader } from "../../util/codec.ts";
import type { AgentConnection } from "../wire/connection.ts";
import { deed } from "./error.ts";
import type { FileOptions } from "./content.ts";
import { pathBytes, pathText } from "./path.ts";
import { toolOutput, type SendInput } from "./tool.ts";

/** A record contains two paths */
const MAX_RECORD = 64 * 1024;

const READY = 0x52;
const READY_TO_FLUSH = 0x53;
const FLUSHED = 0x46;
const FLUSH = Buffer.from("f");

const TYPES = { c: "created", m: "modified", a: "attributes", d: "removed", v: "moved", o: "overflow" } as const;

export type FileChange =
  | { type: "ready" }
  /** events were lost: read the folder again */
  | { type: "overflow" }
  | { type: "created" | "modified" | "attributes" | "removed"; path: string; directory: boolean }
  | { type: "moved"; path: string; directory: boolean; from: string };

export type WatchOptions = FileOptions & {
  recursive: boolean;
  /** changes within this time are merged, and repeated ones reported once; 0: every change is reported */
  debounceMs: number;
  /** called before `ready` with a function that flushes the guest's pending changes; agents of earlier versions have none */
  onFlush?: ((flush: Flush) => void) | undefined;
};

/** Resolves when all changes from before the call were reported and consumed; also when the watch ends */
export type Flush = () => Promise<void>;

/** First `ready`, then every change; ends when the path itself is removed */
export async function* watchFiles(agent: AgentConnection, path: string, opts: WatchOptions): AsyncGenerator<FileChange> {
  const { recursive, debounceMs, user, signal, onFlush } = opts;
  const flags = [...(recursive ? ["--recursive"] : []), ...(onFlush ? ["--flush"] : [])];
  const argv = ["watch", pathBytes(path), String(debounceMs), ...flags];
  const waiting: (() => void)[] = [];
  let send: SendInput | undefined;
  const flush: Flush = async () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      send?.(FLUSH);
    });
  let rest: Buffer = Buffer.alloc(0);
  const output = toolOutput(agent, { what: deed("watch", path), argv, user, signal }, onFlush && ((given) => (send = given)));
  try {
    for await (const chunk of output) {
      rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
      for (;;) {
        const length = recordLength(rest);
        if (length === undefined) break;
        const record = rest.subarray(0, length);
        rest = rest.subarray(length);
        if (record[0] === READY_TO_FLUSH) onFlush?.(flush);
        // The reader asked for more, so it has consumed the earlier changes.
        if (record[0] === FLUSHED) waiting.shift()?.();
        else yield readChange(record);
      }
      // the connection reuses the chunk's memory
      rest = Buffer.from(rest);
    }
  } finally {
    send = undefined;
    for (const resolve of waiting) resolve();
  }
}

/** undefined: the record is incomplete */
function recordLength(bytes: Buffer): number | undefined {
  if (bytes[0] === READY || bytes[0] === READY_TO_FLUSH || bytes[0] === FLUSHED) return 1;
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
  if (record[0] === READY || record[0] === READY_TO_FLUSH) return { type: "ready" };
  const letter = String.fromCharCode(reader.u8());
  const type = Object.hasOwn(TYPES, letter) ? TYPES[letter as keyof typeof TYPES] : undefined;
  if (type === undefined) throw new CodecError(`a change of type ${JSON.stringify(letter)}`);
  const directory = reader.u8() === 1;
  const path = pathText(reader.bytes());
  const from = pathText(reader.bytes());
  if (type === "overflow") return { type };
  return type === "moved" ? { type, path, directory, from } : { type, path, directory };
}
