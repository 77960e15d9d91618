// A stream whose source is opened at the first read.

import { Readable } from "node:stream";

export function lazyStream(open: () => Promise<Readable>): Readable {
  async function* content(): AsyncGenerator<Buffer> {
    yield* (await open()) as AsyncIterable<Buffer>;
  }
  return Readable.from(content(), { objectMode: false, highWaterMark: 1 << 20 });
}
