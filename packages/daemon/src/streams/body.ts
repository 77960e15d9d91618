// Request body readers: JSON with a size limit, uploads as a stream.

import { ForkdError } from "@forkd/runtime/errors";
import { hasRepeatedKeys } from "./repeated-keys.ts";
import type { IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import type { Limits } from "./limits.ts";

/** Matches a key only: inside a string value the quotes would be escaped */
const PROTO_KEY = /"__proto__"\s*:/;
const UTF8 = new TextDecoder("utf-8", { fatal: true });

/** undefined: no body. `unwrap`: extracts the JSON bytes from the body */
export async function readJson(
  stream: IncomingMessage,
  limits: Pick<Limits, "bodyBytes" | "bodyMs">,
  unwrap: (bytes: Buffer) => Buffer = (bytes) => bytes,
): Promise<unknown> {
  const whole = await readAll(stream, limits);
  if (whole.length === 0) return undefined;
  const bytes = unwrap(whole);
  let text: string;
  let value: unknown;
  try {
    text = UTF8.decode(bytes);
    value = JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error;
    // the parser's message quotes the body, which may contain a secret
    throw new ForkdError("BAD_REQUEST", "Cannot read the body: it is not JSON in UTF-8.", { cause: error });
  }
  if (PROTO_KEY.test(text)) throw new ForkdError("BAD_REQUEST", 'Cannot accept the request: body: unknown field "__proto__".');
  if (hasRepeatedKeys(text, value)) throw new ForkdError("BAD_REQUEST", "Cannot accept the request: body: a field is given twice.");
  return value;
}

export type UploadLimits = Pick<Limits, "uploadIdleMs" | "uploadBytesPerSec">;

/** Upload chunks at the reader's speed. Rejects if the client stalls or is too slow */
export async function* readPieces(stream: NodeJS.ReadableStream, limits: UploadLimits): AsyncGenerator<Uint8Array> {
  const { uploadIdleMs: idleMs, uploadBytesPerSec: rate } = limits;
  // a reader that stops early still sends a response, which needs the connection
  const iterator = (stream as Readable).iterator({ destroyOnReturn: false });
  // counts only the time spent waiting for the client: the guest may be slow
  let waitedMs = 0;
  let bytes = 0;
  try {
    for (;;) {
      const from = performance.now();
      const next = await withDeadline(iterator.next(), idleMs, "the client stopped sending");
      if (next.done) return;
      const piece = next.value as Uint8Array;
      waitedMs += performance.now() - from;
      bytes += piece.length;
      if (waitedMs >= idleMs) {
        if (bytes < (waitedMs / 1000) * rate)
          throw new ForkdError("REQUEST_TIMEOUT", `Cannot read the body: the client sends less than ${rate} bytes a second.`);
        waitedMs = 0;
        bytes = 0;
      }
      yield piece;
    }
  } finally {
    // not awaited: the end of a stalled stream may never come
    void iterator.return?.().catch(() => undefined);
  }
}

function readAll(stream: IncomingMessage, limits: Pick<Limits, "bodyBytes" | "bodyMs">): Promise<Buffer> {
  const tooLarge = (): ForkdError => new ForkdError("TOO_LARGE", `Cannot read the body: it is larger than ${limits.bodyBytes} bytes.`);
  if (Number(stream.headers["content-length"] ?? 0) > limits.bodyBytes) return Promise.reject(tooLarge());
  const whole = new Promise<Buffer>((resolve, reject) => {
    const pieces: Buffer[] = [];
    let length = 0;
    const onData = (piece: Buffer): void => {
      length += piece.length;
      if (length > limits.bodyBytes) {
        stream.off("data", onData);
        reject(tooLarge());
      } else pieces.push(piece);
    };
    stream.on("data", onData);
    stream.once("end", () => resolve(pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces)));
    stream.once("error", reject);
    stream.once("close", () => {
      // 'close' also follows a normal end, after the promise is settled
      if (!stream.readableEnded) reject(new ForkdError("CANCELLED", "Cannot read the body: the client disconnected."));
    });
  });
  return withDeadline(whole, limits.bodyMs, "it did not arrive in time");
}

async function withDeadline<V>(work: Promise<V>, timeoutMs: number, why: string): Promise<V> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new ForkdError("REQUEST_TIMEOUT", `Cannot read the body: ${why}.`)), timeoutMs);
  });
  try {
    return await Promise.race([work, deadline]);
  } finally {
    clearTimeout(timer);
  }
}
