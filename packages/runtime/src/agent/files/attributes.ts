// Extended attributes of files, selected by a prefix of their names.

import { ForkdError } from "../../errors.ts";
import { CodecError, Reader, Writer } from "../../util/codec.ts";
import type { AgentConnection } from "../wire/connection.ts";
import { deed } from "./error.ts";
import type { FileOptions } from "./content.ts";
import { GrowingBuffer } from "../../util/growing-buffer.ts";
import { pathBytes } from "./path.ts";
import { AgentError } from "../wire/stream.ts";
import { runTool } from "./tool.ts";

/** The agent sends up to 16 KiB per file, and accepts 4 MiB of paths */
const MAX_PATHS = 500;
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;
/** For all files of one call: 16 MiB can hold a million attributes, each of which takes ten times its bytes in memory */
const MAX_ATTRIBUTES = 50_000;

/** Keyed by the name without the prefix */
export type Attributes = ReadonlyMap<string, string>;

/** For each path, in the same order; empty for a path that cannot be read. Links are followed */
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

/** Replaces all attributes with this prefix */
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
  let room = MAX_ATTRIBUTES;
  return paths.map(() => {
    // The guest wrote them: bytes that are not UTF-8 stay readable.
    const pairs = reader.list((pair): [string, string] => [pair.bytes().toString(), pair.bytes().toString()], room);
    room -= pairs.length;
    return new Map(pairs);
  });
}

/** The agent of an older snapshot has no such tool, and never set an attribute */
function isUnknown(error: unknown): boolean {
  return error instanceof ForkdError && error.cause instanceof AgentError && error.cause.errno === "bad_request";
}

async function* only(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}
