// Process output as server-sent events; an event id is the position to resume from.

import { ForkdError } from "@forkd/runtime/errors";
import type { OutputFrom } from "../api/process.ts";
import type { WatchedProcess } from "../service/processes.ts";
import type { ServerEvent } from "../streams/sse.ts";

type Channel = "stdout" | "stderr";

export async function* processEvents(process: WatchedProcess, encoding: "utf8" | "base64"): AsyncGenerator<ServerEvent> {
  const { started } = process;
  const at: Record<Channel, number> = { stdout: started.stdout_offset, stderr: started.stderr_offset };
  const rest: Record<Channel, Buffer> = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
  const cursor = (): string => `${at.stdout}-${at.stderr}`;
  const output = (channel: Channel, bytes: Buffer): ServerEvent => {
    const offset = at[channel];
    at[channel] = offset + bytes.length;
    const data = encoding === "base64" ? { offset, base64: bytes.toString("base64") } : { offset, text: bytes.toString("utf8") };
    return { id: cursor(), event: channel, data };
  };
  /** Emits the bytes of incomplete characters */
  function* flush(channels: readonly Channel[]): Generator<ServerEvent> {
    for (const channel of channels) {
      const bytes = rest[channel];
      rest[channel] = Buffer.alloc(0);
      if (bytes.length > 0) yield output(channel, bytes);
    }
  }

  yield { id: cursor(), event: "started", data: started };
  for await (const event of process) {
    if (event.type === "exit") {
      yield* flush(["stdout", "stderr"]);
      yield { id: cursor(), event: "exit", data: event.exit };
    } else if (event.type === "lost") {
      const { channel, bytes } = event;
      yield* flush([channel]);
      at[channel] = event.offset;
      yield { id: cursor(), event: "lost", data: { channel, bytes } };
    } else {
      const { channel } = event;
      const bytes = rest[channel].length === 0 ? event.bytes : Buffer.concat([rest[channel], event.bytes]);
      const whole = encoding === "base64" ? bytes.length : wholeCharacters(bytes);
      rest[channel] = bytes.subarray(whole);
      if (whole > 0) yield output(channel, bytes.subarray(0, whole));
    }
  }
}

/** Position to resume from: Last-Event-ID, which browsers send on reconnect, takes precedence over the query */
export function placeOf(query: OutputFrom, lastEventId: string | string[] | undefined): OutputFrom {
  if (lastEventId === undefined) return query;
  const [, stdout, stderr] = /^(\d{1,15})-(\d{1,15})$/.exec(String(lastEventId)) ?? [];
  if (stdout === undefined) throw new ForkdError("BAD_REQUEST", "Cannot accept the request: Last-Event-ID: must be the id of an event.");
  return { stdout_from: Number(stdout), stderr_from: Number(stderr) };
}

/** Length without an incomplete UTF-8 character at the end */
export function wholeCharacters(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] as number;
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return length > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}
