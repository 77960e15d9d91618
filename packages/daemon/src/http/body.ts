// Reads what a client sends: JSON as a whole and bounded, uploads piece by piece.

import { ForkdError } from "../errors.ts";
import { hasRepeatedKeys } from "./repeated-keys.ts";
import type { IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import type { Limits } from "./services.ts";

/** A key, not the text of a value: inside a string the quotes would be escaped */
const PROTO_KEY = /"__proto__"\s*:/;
const UTF8 = new TextDecoder("utf-8", { fatal: true });

/** undefined: there is no body. `unwrap`: where the JSON is in it */
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
    // the parser's message quotes the body, which may hold a secret
    throw new ForkdError("BAD_REQUEST", "Cannot read the body: it is not JSON in UTF-8.", { cause: error });
  }
  if (PROTO_KEY.test(text)) throw new ForkdError("BAD_REQUEST", 'Cannot accept the request: body: unknown field "__proto__".');
  if (hasRepeatedKeys(text, value)) throw new ForkdError("BAD_REQUEST", "Cannot accept the request: body: a field is given twice.");
  return value;
}

/** An upload in pieces, as fast as they are taken; a client that stops sending is not waited for */
export async function* readPieces(stream: NodeJS.ReadableStream, idleMs: number): AsyncGenerator<Uint8Array> {
  // whoever stops taking pieces has an answer to give, and needs the connection for it
  const iterator = (stream as Readable).iterator({ destroyOnReturn: false });
  try {
    for (;;) {
      const next = await withDeadline(iterator.next(), idleMs, "the client stopped sending");
      if (next.done) return;
      yield next.value as Uint8Array;
    }
  } finally {
    // not awaited: the end of a stream that hangs may never come
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
      // it also comes after every end, where there is nobody to tell
      if (!stream.readableEnded) reject(new ForkdError("CANCELLED", "Cannot read the body: the client went away."));
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
