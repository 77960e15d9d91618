// Tars made for tests, also such as no honest tool would make.

import { encodeHeader, endOfTar, paddingOf, rootHeader } from "../../../src/image/tar-write.ts";
import type { TarHeader, TarType } from "../../../src/image/tar-read.ts";

export type Item = { path: string; type?: TarType; content?: string | Buffer; link?: string } & Partial<
  Pick<TarHeader, "mode" | "uid" | "gid" | "xattrs" | "major" | "minor" | "size">
>;

export function tarOf(items: readonly Item[]): Buffer {
  const parts: Buffer[] = [];
  for (const item of items) {
    const { content, link, ...fields } = item;
    const data = Buffer.from(content ?? "");
    const type = item.type ?? (item.path.endsWith("/") ? "dir" : "file");
    const header = rootHeader({
      mode: type === "dir" ? 0o755 : 0o644,
      size: data.length,
      linkname: link ?? "",
      mtime: 1_600_000_000,
      ...fields,
      type,
    });
    parts.push(encodeHeader(header), data, paddingOf(data.length));
  }
  return Buffer.concat([...parts, endOfTar()]);
}

/** Rewrites a header's bytes and its checksum */
export function patchHeader(tar: Buffer, at: number, patch: (block: Buffer) => void): Buffer {
  const copy = Buffer.from(tar);
  const block = copy.subarray(at, at + 512);
  patch(block);
  block.fill(0x20, 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return copy;
}
