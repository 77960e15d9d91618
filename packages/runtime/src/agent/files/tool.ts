// Tools built into the agent: long-running file operations, each in its own process, which ends with its stream.

import { ForkdError } from "../../errors.ts";
import { chunksOf } from "../wire/chunks.ts";
import { Reader, Writer } from "../../util/codec.ts";
import { within } from "../../util/within.ts";
import type { AgentConnection } from "../wire/connection.ts";
import { fileCall, fileError, type Deed } from "./error.ts";
import { OutputTail } from "../../util/growing-buffer.ts";
import { CHANNEL, T, type Frame } from "../wire/protocol.ts";
import { AgentError, type AgentStream } from "../wire/stream.ts";

const MAX_REASON = 4096;

export type ToolOptions = {
  user?: string | undefined;
  signal?: AbortSignal | undefined;
};

export type ToolCall = ToolOptions & {
  /** action, for messages */
  what: Deed;
  argv: readonly (string | Uint8Array)[];
};

/** Sends bytes to a tool; after the tool has ended they are dropped */
export type SendInput = (bytes: Uint8Array) => void;

/** Runs a tool to its end; rejects with a file error when it fails */
export async function runTool(
  agent: AgentConnection,
  call: ToolCall,
  io: { input?: AsyncIterable<Uint8Array>; onOutput?: (bytes: Buffer) => void } = {},
): Promise<void> {
  const reason = new OutputTail(MAX_REASON);
  const stream = agent.open(T.TOOL, payloadOf(call), (channel, bytes) => {
    if (channel === CHANNEL.stdout) io.onOutput?.(bytes);
    else reason.add(bytes);
  });
  const work = async (): Promise<void> => {
    const ended = stream.end();
    ended.catch(() => undefined); // awaited below, after the input
    await Promise.race([feed(stream, io.input), ended]);
    checkExit(call.what, await ended, reason);
  };
  try {
    await fileCall(
      call.what,
      within(work(), 0, call.signal, () => new Error("unreachable: no time-out was asked for")),
    );
  } finally {
    stream.cancel();
  }
}

/** The output of a tool, as a stream; without `onInput` its stdin is closed */
export async function* toolOutput(agent: AgentConnection, call: ToolCall, onInput?: (send: SendInput) => void): AsyncGenerator<Buffer> {
  const reason = new OutputTail(MAX_REASON);
  const open = (onData: (channel: number, bytes: Buffer) => void | Promise<void>): AgentStream => {
    const stream = agent.open(T.TOOL, payloadOf(call), onData);
    if (onInput) onInput((bytes) => void stream.write(CHANNEL.stdin, bytes).catch(() => undefined));
    else stream.eof(CHANNEL.stdin);
    return stream;
  };
  const chunks = chunksOf(open, {
    channel: CHANNEL.stdout,
    onOther: (_channel, bytes) => reason.add(bytes),
    onEnd: (frame) => checkExit(call.what, frame, reason),
    signal: call.signal,
  });
  try {
    yield* chunks;
  } catch (error) {
    if (error instanceof AgentError) throw fileError(call.what, error);
    throw error;
  }
}

function payloadOf({ argv, user }: ToolCall): Buffer {
  return new Writer()
    .list(argv, (writer, arg) => void writer.bytes(typeof arg === "string" ? Buffer.from(arg) : arg))
    .str(user ?? "")
    .done();
}

async function feed(stream: AgentStream, input: AsyncIterable<Uint8Array> | undefined): Promise<void> {
  try {
    for await (const chunk of input ?? []) await stream.write(CHANNEL.stdin, chunk);
    stream.eof(CHANNEL.stdin);
  } catch (error) {
    // The exit of the tool gives the reason.
    if (!stream.over) throw error;
  }
}

/** A tool exits with 0, or with 1 and `code NUL message` on stderr */
function checkExit(what: Deed, frame: Frame, reason: OutputTail): void {
  const reader = new Reader(frame.payload);
  const code = reader.i32();
  const signal = reader.u32();
  if (code === 0 && signal === 0) return;
  const [errno = "", message = ""] = reason.toString().split("\0", 2);
  if (code === 1 && message !== "") throw fileError(what, new AgentError(errno, message));
  throw new ForkdError(
    "FILE_FAILED",
    `Cannot ${what} in the guest: the agent's tool ended with ${signal > 0 ? `signal ${signal}` : code}.`,
  );
}
