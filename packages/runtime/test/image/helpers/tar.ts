// Tars for tests, including invalid ones.

import { encodeHeader, endOfTar, paddingOf, rootHeader } from "../../../src/archive/tar-write.ts";
import type { TarHeader, TarType } from "../../../src/archive/tar-read.ts";

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

/** An extended header: for the next entry (x), or for all later ones (g) */
export function extended(flag: "x" | "g", fields: Record<string, string>): Buffer {
  const records = Object.entries(fields).map(([key, value]) => {
    const content = ` ${key}=${value}\n`;
    let length = content.length;
    while (content.length + String(length).length !== length) length = content.length + String(length).length;
    return `${length}${content}`;
  });
  const whole = tarOf([{ path: "extended", content: records.join("") }]);
  return patchHeader(whole, 0, (block) => block.write(flag, 156)).subarray(0, -endOfTar().length);
}
