// Encodes tar entries for sqfstar: ustar, with a pax header where a value does not fit.

import { writeFile } from "node:fs/promises";
import type { TarHeader, TarType } from "./tar-read.ts";

const BLOCK = 512;
const FLAGS: Record<TarType, string> = { file: "0", hardlink: "1", symlink: "2", char: "3", block: "4", dir: "5", fifo: "6" };

/** The header blocks of an entry */
export function encodeHeader(header: TarHeader): Buffer {
  const path = header.type === "dir" && !header.path.endsWith("/") ? `${header.path}/` : header.path;
  const records: Buffer[] = [];
  if (path.length > 100 || /[^\0-\x7f]/.test(path)) records.push(paxRecord("path", path));
  if (header.size > 0o77777777777) records.push(paxRecord("size", String(header.size)));
  if (header.uid > 0o7777777) records.push(paxRecord("uid", String(header.uid)));
  if (header.gid > 0o7777777) records.push(paxRecord("gid", String(header.gid)));
  for (const [name, value] of header.xattrs) records.push(paxRecord(`SCHILY.xattr.${name}`, value));
  const main = block(path, FLAGS[header.type], header);
  // sqfstar strips a leading "/" and "./" from a pax linkpath. That is right for hard links and wrong for symbolic ones, so they use GNU's long link.
  const isLong = header.linkname.length > 100;
  if (isLong && header.type === "hardlink") records.push(paxRecord("linkpath", header.linkname));
  const longLink = isLong && header.type !== "hardlink" ? extension("K", Buffer.from(`${header.linkname}\0`, "latin1")) : [];
  const pax = records.length > 0 ? extension("x", Buffer.concat(records)) : [];
  return Buffer.concat([...longLink, ...pax, main]);
}

/** The padding after an entry's content */
export function paddingOf(size: number): Buffer {
  return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}

export function endOfTar(): Buffer {
  return Buffer.alloc(2 * BLOCK);
}

/** An entry owned by root, with defaults for the fields that are not given */
export function rootHeader(fields: Partial<TarHeader> & Pick<TarHeader, "path" | "type" | "mode">): TarHeader {
  return { uid: 0, gid: 0, size: 0, mtime: 0, linkname: "", major: 0, minor: 0, xattrs: new Map(), ...fields };
}

function extension(flag: "x" | "K", data: Buffer): Buffer[] {
  return [block("extension", flag, rootHeader({ path: "", type: "file", mode: 0o644, size: data.length })), data, paddingOf(data.length)];
}

function block(path: string, flag: string, header: TarHeader): Buffer {
  const data = Buffer.alloc(BLOCK);
  data.write(path.slice(0, 100), 0, "latin1");
  octal(data, 100, 8, header.mode & 0o7777);
  octal(data, 108, 8, Math.min(header.uid, 0o7777777));
  octal(data, 116, 8, Math.min(header.gid, 0o7777777));
  octal(data, 124, 12, header.size > 0o77777777777 ? 0 : header.size);
  octal(data, 136, 12, header.mtime);
  data.write(flag, 156, "latin1");
  data.write(header.linkname.slice(0, 100), 157, "latin1");
  data.write("ustar\x0000", 257, "latin1");
  octal(data, 329, 8, header.major);
  octal(data, 337, 8, header.minor);
  data.fill(0x20, 148, 156);
  const sum = data.reduce((total, byte) => total + byte, 0);
  data.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return data;
}

function octal(data: Buffer, at: number, length: number, value: number): void {
  data.write(`${value.toString(8).padStart(length - 1, "0")}\0`, at, "latin1");
}

function paxRecord(key: string, value: string | Buffer): Buffer {
  const content = Buffer.concat([
    Buffer.from(` ${key}=`, "latin1"),
    typeof value === "string" ? Buffer.from(value, "latin1") : value,
    Buffer.from("\n"),
  ]);
  let length = content.length + 1;
  // The length includes its own digits.
  while (content.length + String(length).length !== length) length = content.length + String(length).length;
  return Buffer.concat([Buffer.from(String(length)), content]);
}

/** A small tar of text files owned by root. Readable by its owner alone until unpacked: it may hold passwords for mirrors */
export async function writeTextTar(path: string, files: Readonly<Record<string, string>>): Promise<void> {
  const parts: Buffer[] = [];
  for (const [name, text] of Object.entries(files)) {
    const data = Buffer.from(text);
    parts.push(encodeHeader(rootHeader({ path: name, type: "file", mode: 0o644, size: data.length })), data, paddingOf(data.length));
  }
  await writeFile(path, Buffer.concat([...parts, endOfTar()]), { mode: 0o600 });
}
