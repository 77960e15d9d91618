// Archives for upload tests.

import { encodeHeader, endOfTar, paddingOf, rootHeader } from "@forkd/runtime/archive/tar-write";
import type { TarHeader } from "@forkd/runtime/archive/tar-read";

export type Odd = Partial<TarHeader> & Pick<TarHeader, "path" | "type">;

/** Files by path, followed by other entries */
export async function* tarOf(files: Record<string, string>, others: Odd[] = []): AsyncGenerator<Buffer> {
  for (const [path, text] of Object.entries(files)) {
    const data = Buffer.from(text);
    yield encodeHeader(rootHeader({ path, type: "file", mode: 0o644, size: data.length }));
    yield data;
    yield paddingOf(data.length);
  }
  for (const other of others) yield encodeHeader(rootHeader({ mode: 0o644, ...other }));
  yield endOfTar();
}
