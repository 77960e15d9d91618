// Fuzz target: a guest's answers about files, processes and interpreters. The first byte of an input selects the
// parser.

import assert from "node:assert/strict";
import { getAttributes } from "@forkd/runtime/agent/files/attributes";
import { listFiles } from "@forkd/runtime/agent/files/listing";
import { pathBytes } from "@forkd/runtime/agent/files/path";
import { watchFiles } from "@forkd/runtime/agent/files/watch";
import { LineReader, parseMessage, valuesIn } from "@forkd/runtime/agent/kernel/messages";
import { listProcesses } from "@forkd/runtime/agent/process/list";
import { CHANNEL, T } from "@forkd/runtime/agent/wire/protocol";
import { Reader, Writer } from "@forkd/runtime/util/codec";
import { declared, piecesOf, type Target } from "../target.ts";
import type { AgentConnection } from "@forkd/runtime/agent/wire/connection";
import type { AgentStream } from "@forkd/runtime/agent/wire/stream";

const CODES = ["AGENT_PROTOCOL", "CANCELLED"] as const;
const LIMIT = 5;
const CURSOR = Buffer.from("b").toString("base64url");
const EXIT = new Writer().i32(0).u32(0).u8(0).done();

const info = (kind: string): Buffer =>
  Buffer.concat([
    Buffer.from(kind),
    new Writer()
      .u32(0o644)
      .u32(0)
      .u32(0)
      .u64(7n)
      .i64(1_000_000_000n)
      .str("root")
      .str("")
      .str(kind === "l" ? "to" : "")
      .done(),
  ]);
const entry = (path: string, kind = "f"): Buffer => Buffer.concat([Buffer.from("+"), new Writer().str(path).done(), info(kind)]);
const change = (letter: string, path: string, from = ""): Buffer =>
  Buffer.concat([Buffer.from(`${letter}\0`), new Writer().str(path).str(from).done()]);

/** By the first byte of an input; each parses the rest and returns the result as text */
const PARSERS: readonly ((pieces: readonly Buffer[]) => Promise<string>)[] = [
  async (pieces) => {
    const { files, cursor } = await listFiles(agentThatSends(pieces), "/d", { depth: 2, limit: LIMIT, cursor: CURSOR });
    assert.ok(files.length <= LIMIT && files.every(({ path }) => pathBytes(path).subarray(0, 3).toString() === "/d/"));
    assert.ok(cursor === null || files.length > 0, "a page without an entry is followed by another");
    return `list ${JSON.stringify(files)} ${cursor !== null}`;
  },
  async (pieces) => `watch ${JSON.stringify(await Array.fromAsync(watchFiles(agentThatSends(pieces), "/d", WATCH)))}`,
  async (pieces) => {
    const all = await getAttributes(agentThatSends(pieces), ["/x", "/y"], "user.");
    assert.equal(all.length, 2);
    return `attributes ${JSON.stringify(all.map((each) => [...each]))}`;
  },
  async (pieces) => {
    // A list is a single frame, so the pieces are joined.
    const all = await listProcesses({ call: async () => new Reader(Buffer.concat(pieces)) } as unknown as AgentConnection, 1000);
    return `processes ${JSON.stringify(all)}`;
  },
  async (pieces) => {
    const lines = new LineReader();
    const all = pieces.flatMap((piece) => lines.push(piece) ?? assert.fail("a short line is too long"));
    for (const line of all) assert.ok(nodesIn(line) <= 2 * valuesIn(line) + 1, `values were not counted in ${line.slice(0, 80)}`);
    return `kernel ${JSON.stringify(all.map((line) => parseMessage(line) ?? null))}`;
  },
];
const WATCH = { recursive: true, debounceMs: 0, onFlush: () => undefined };

export const target: Target = {
  sources: [
    "packages/runtime/src/agent/files/attributes.ts",
    "packages/runtime/src/agent/files/listing.ts",
    "packages/runtime/src/agent/files/watch.ts",
    "packages/runtime/src/agent/files/tool.ts",
    "packages/runtime/src/agent/kernel/messages.ts",
    "packages/runtime/src/agent/process/list.ts",
    "packages/runtime/src/util/codec.ts",
  ],
  tokens: [
    ...["f", "d", "l"].map((kind) => entry("c", kind)),
    entry("c/d"),
    Buffer.from(".\x01"),
    Buffer.from(".\0"),
    Buffer.concat([Buffer.from("!"), new Writer().str("EACCES").done()]),
    ...["c", "m", "a", "d", "v", "o"].map((letter) => change(letter, "/d/x", "/d/y")),
    "R",
    "S",
    "F",
    new Writer().list(["a"], (writer, name) => void writer.str(name).str("v")).done(),
    Buffer.alloc(4, 0xff),
    '{"event":"ready","version":"3"}\n',
    '{"event":"display","id":1,"data":{"a/b":[{}]},"omitted":{"c":1}}\n',
    '{"event":"error","id":1,"type":"T","message":"\\"[","traceback":""}\n',
    '{"event":"status","id":1,"count":1,"status":3}\n',
    "\n",
  ],
  maxBytes: 8000,
  run: async (input) => {
    const parse = PARSERS[(input[0] ?? 0) % PARSERS.length];
    assert.ok(parse);
    const [whole, pieces] = [await outcome(parse, [input.subarray(1)]), await outcome(parse, piecesOf(input.subarray(1)))];
    assert.equal(pieces, whole, "the same bytes in pieces are something else");
    return shapeOf(whole);
  },
};

async function outcome(parse: (pieces: readonly Buffer[]) => Promise<string>, pieces: readonly Buffer[]): Promise<string> {
  try {
    return await parse(pieces);
  } catch (error) {
    return declared(error, CODES);
  }
}

/** Result without its values, which would make every input a new outcome */
function shapeOf(text: string): string {
  return text.replaceAll(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?/g, "#").slice(0, 60);
}

/** Number of values in a JSON text; 0 if it is not JSON */
function nodesIn(line: string): number {
  let nodes = 0;
  try {
    JSON.parse(line, () => void nodes++);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return 0;
  }
  return nodes;
}

/** An agent whose tools write these bytes and exit with code 0 */
function agentThatSends(pieces: readonly Buffer[]): AgentConnection {
  const open: AgentConnection["open"] = (type, _payload, onData) => {
    assert.equal(type, T.TOOL);
    let isOver = false;
    const cancelled = Promise.withResolvers<void>();
    const sent = (async () => {
      await Promise.resolve(); // like a real agent, sends nothing before the caller has its stream
      // a cancelled reader takes no data and does not wait
      for (const piece of pieces) if (!isOver) await Promise.race([onData?.(CHANNEL.stdout, piece), cancelled.promise]);
      return { type: T.EXIT, stream: 1, payload: EXIT };
    })();
    sent.catch(() => undefined); // handled through end()
    const stream: Partial<AgentStream> = {
      end: async () => sent,
      write: async () => undefined,
      eof: () => undefined,
      cancel: () => {
        isOver = true;
        cancelled.resolve();
      },
      get over() {
        return isOver;
      },
    };
    return stream as AgentStream;
  };
  return { open } as AgentConnection;
}
