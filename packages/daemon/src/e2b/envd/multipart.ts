// Streaming multipart/form-data parser: a file may be larger than the daemon's memory.

import { ForkdError } from "@forkd/runtime/errors";

const MAX_HEAD_BYTES = 16 * 1024;
const END_OF_HEAD = Buffer.from("\r\n\r\n");

/** The content must be read before the next part is requested */
export type Part = { name: string; filename: string | undefined; content: AsyncIterable<Buffer> };

/** Boundary parameter of a Content-Type; null: not multipart/form-data */
export function boundaryOf(contentType: string | undefined): string | null {
  if (!/^multipart\/form-data\b/i.test(contentType ?? "")) return null;
  const [, quoted, plain] = /;\s*boundary=(?:"([^"]+)"|([^;\s]+))/i.exec(contentType ?? "") ?? [];
  return quoted ?? plain ?? null;
}

export async function* readParts(source: AsyncIterable<Uint8Array>, boundary: string): AsyncGenerator<Part> {
  // a delimiter starts with CRLF; a virtual CRLF makes the first one regular
  const reader = new Reader(source, Buffer.from("\r\n"));
  const delimiter = Buffer.from(`\r\n--${boundary}`);
  await drain(reader.until(delimiter));
  for (;;) {
    const mark = (await reader.take(2)).toString("latin1");
    if (mark === "--") return;
    if (mark !== "\r\n") throw malformed("a boundary is followed by something else than a line");
    const part = { ...fieldsOf(await reader.head()), content: reader.until(delimiter) };
    yield part;
    await drain(part.content);
  }
}

class Reader {
  readonly #source: AsyncIterator<Uint8Array>;
  #buffer: Buffer;

  constructor(source: AsyncIterable<Uint8Array>, before: Buffer) {
    this.#source = source[Symbol.asyncIterator]();
    this.#buffer = before;
  }

  /** Yields the bytes before the delimiter and consumes the delimiter */
  async *until(delimiter: Buffer): AsyncGenerator<Buffer> {
    for (;;) {
      const at = this.#buffer.indexOf(delimiter);
      if (at >= 0) {
        const rest = this.#buffer.subarray(0, at);
        this.#buffer = this.#buffer.subarray(at + delimiter.length);
        if (rest.length > 0) yield rest;
        return;
      }
      // the buffer may end with a prefix of the delimiter
      const safe = this.#buffer.length - delimiter.length + 1;
      if (safe > 0) {
        const piece = this.#buffer.subarray(0, safe);
        this.#buffer = this.#buffer.subarray(safe);
        yield piece;
      }
      await this.#more();
    }
  }

  async take(length: number): Promise<Buffer> {
    while (this.#buffer.length < length) await this.#more();
    const taken = this.#buffer.subarray(0, length);
    this.#buffer = this.#buffer.subarray(length);
    return taken;
  }

  async head(): Promise<string> {
    for (;;) {
      const at = this.#buffer.indexOf(END_OF_HEAD);
      // complete headers are checked too: the result must not depend on chunk boundaries
      if ((at < 0 ? this.#buffer.length - END_OF_HEAD.length : at) > MAX_HEAD_BYTES) throw malformed("the headers of a part do not end");
      if (at >= 0) return (await this.take(at + END_OF_HEAD.length)).toString("utf8");
      await this.#more();
    }
  }

  async #more(): Promise<void> {
    const step = await this.#source.next();
    if (step.done === true) throw malformed("it ends before its last boundary");
    this.#buffer = this.#buffer.length === 0 ? Buffer.from(step.value) : Buffer.concat([this.#buffer, step.value]);
  }
}

function fieldsOf(head: string): { name: string; filename: string | undefined } {
  const disposition = /^content-disposition:(.*)$/im.exec(head)?.[1] ?? "";
  const field = (name: string): string | undefined => {
    const [, quoted, plain] = new RegExp(`;\\s*${name}=(?:"((?:[^"\\\\]|\\\\.)*)"|([^;\\s]+))`, "i").exec(disposition) ?? [];
    return quoted === undefined ? plain : unescaped(quoted);
  };
  return { name: field("name") ?? "", filename: field("filename") };
}

/** Browsers and Node percent-encode three characters, other clients escape quotes with a backslash */
function unescaped(text: string): string {
  return text
    .replaceAll(/\\(["\\])/g, "$1")
    .replaceAll(/%22/g, '"')
    .replaceAll(/%0D/gi, "\r")
    .replaceAll(/%0A/gi, "\n");
}

async function drain(pieces: AsyncIterable<Buffer>): Promise<void> {
  const iterator = pieces[Symbol.asyncIterator]();
  while ((await iterator.next()).done !== true);
}

function malformed(why: string): ForkdError {
  return new ForkdError("BAD_REQUEST", `Cannot read the form: ${why}.`);
}
