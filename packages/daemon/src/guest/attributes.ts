// Extended attributes of files, those whose names begin in the same way at a time.

import { ForkdError } from "../errors.ts";
import { CodecError, Reader, Writer } from "./codec.ts";
import type { AgentConnection } from "./connection.ts";
import { deed } from "./file-error.ts";
import type { FileOptions } from "./files.ts";
import { GrowingBuffer } from "./growing-buffer.ts";
import { pathBytes } from "./guest-path.ts";
import { AgentError } from "./stream.ts";
import { runTool } from "./tool.ts";

/** The agent tells up to 16 KiB of each, and takes 4 MiB of paths */
const MAX_PATHS = 500;
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

/** By what follows the prefix in their names */
export type Attributes = ReadonlyMap<string, string>;

/** Of each path, in the same order; of one that cannot be read, none. Links are followed */
export async function getAttributes(
  agent: AgentConnection,
  paths: readonly string[],
  prefix: string,
  opts: FileOptions = {},
): Promise<Attributes[]> {
  const all: Attributes[] = [];
  for (let at = 0; at < paths.length; at += MAX_PATHS) all.push(...(await getSome(agent, paths.slice(at, at + MAX_PATHS), prefix, opts)));
  return all;
}

/** In place of all that it had with this prefix */
export async function setAttributes(
  agent: AgentConnection,
  path: string,
  given: { prefix: string; attributes: Attributes },
  { user, signal }: FileOptions = {},
): Promise<void> {
  const argv = ["set-attributes", pathBytes(path), given.prefix];
  const input = new Writer().list([...given.attributes], (writer, [name, value]) => void writer.str(name).str(value)).done();
  try {
    await runTool(agent, { what: deed("set the attributes of", path), argv, user, signal }, { input: only(input) });
  } catch (error) {
    if (given.attributes.size > 0 || !isUnknown(error)) throw error;
  }
}

async function getSome(agent: AgentConnection, paths: string[], prefix: string, { user, signal }: FileOptions): Promise<Attributes[]> {
  const output = new GrowingBuffer();
  const onOutput = (bytes: Buffer): void => {
    if (!output.add(bytes, MAX_OUTPUT_BYTES)) throw new CodecError(`attributes of more than ${MAX_OUTPUT_BYTES} bytes`);
  };
  const input = new Writer().list(paths, (writer, path) => void writer.bytes(pathBytes(path))).done();
  const what = deed("read the attributes of", paths[0] ?? "");
  try {
    await runTool(agent, { what, argv: ["attributes", prefix], user, signal }, { input: only(input), onOutput });
  } catch (error) {
    if (isUnknown(error)) return paths.map(() => new Map());
    throw error;
  }
  const reader = new Reader(output.bytes());
  // of a guest's making: bytes that are no text stay readable
  return paths.map(() => new Map(reader.list((pair): [string, string] => [pair.bytes().toString(), pair.bytes().toString()])));
}

/** The agent of an older snapshot has no such tool, and never gave a file any */
function isUnknown(error: unknown): boolean {
  return error instanceof ForkdError && error.cause instanceof AgentError && error.cause.errno === "bad_request";
}

async function* only(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}
