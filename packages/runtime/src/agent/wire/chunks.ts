// The bytes of a stream at the reader's pace: the guest waits for the reader.

import { throwIfCancelled } from "../../util/within.ts";
import type { Frame } from "./protocol.ts";
import type { AgentStream } from "./stream.ts";

type OnData = (channel: number, bytes: Buffer) => void | Promise<void>;

export type ChunksOptions = {
  /** the channel to read */
  channel: number;
  /** consumer of the other channels */
  onOther?: (channel: number, bytes: Buffer) => void;
  /** checks the last frame; its error is thrown to the reader */
  onEnd?: (frame: Frame) => void;
  signal?: AbortSignal | undefined;
};

/** Ends with the stream, or rejects with its error; a reader that stops cancels the stream */
export async function* chunksOf(open: (onData: OnData) => AgentStream, opts: ChunksOptions): AsyncGenerator<Buffer> {
  const { channel, signal } = opts;
  const chunks: { bytes: Buffer; taken: () => void }[] = [];
  let wake: (() => void) | undefined;
  throwIfCancelled(signal);
  const stream = open((from, bytes) => {
    if (from !== channel) return opts.onOther?.(from, bytes);
    const taken = Promise.withResolvers<void>();
    chunks.push({ bytes, taken: taken.resolve });
    wake?.();
    return taken.promise;
  });
  let done = false;
  const ended = stream.end().finally(() => {
    done = true;
    wake?.();
  });
  ended.catch(() => undefined); // awaited below, after the chunks that arrived before it
  const abort = (): void => stream.cancel();
  signal?.addEventListener("abort", abort, { once: true });
  try {
    for (;;) {
      throwIfCancelled(signal);
      const chunk = chunks.shift();
      if (chunk) {
        yield chunk.bytes;
        chunk.taken();
      } else if (done) {
        const frame = await ended;
        opts.onEnd?.(frame);
        return;
      } else {
        await new Promise<void>((resolve) => (wake = resolve));
        wake = undefined;
      }
    }
  } finally {
    signal?.removeEventListener("abort", abort);
    stream.cancel();
  }
}
