// Reads a tar stream entry by entry. Names and attribute values are kept byte for byte, as Latin-1 strings and buffers:
// capabilities are binary and file names need not be UTF-8.

import { ForkdError } from "../errors.ts";
import { ByteSource } from "../util/byte-source.ts";

const BLOCK = 512;
const MAX_EXTENDED_HEADER = 1024 * 1024;
export const MAX_PATH = 4095;
/** Fields that a global extended header may set. Others, such as attributes, would be copied for each entry and use up memory */
const GLOBAL_KEYS = new Set(["uid", "gid", "mtime"]);
const XATTR = "SCHILY.xattr.";
/** The largest device number that fits into a header's octal digits */
const MAX_DEVICE = 0o7777777;
const NO_XATTRS: ReadonlyMap<string, Buffer> = new Map();

export type TarType = "file" | "hardlink" | "symlink" | "char" | "block" | "dir" | "fifo";

export type TarHeader = {
  /** as written in the archive, one Latin-1 character per byte */
  path: string;
  type: TarType;
  mode: number;
  uid: number;
  gid: number;
  size: number;
  /** `seconds` since 1970 */
  mtime: number;
  /** target of a link, one Latin-1 character per byte; empty for other entries */
  linkname: string;
  major: number;
  minor: number;
  xattrs: ReadonlyMap<string, Buffer>;
};

export type TarEntry = {
  header: TarHeader;
  /** offset of the content in the stream */
  offset: number;
  /** the content; unread bytes are skipped */
  body: () => AsyncGenerator<Buffer>;
};

const TYPES: Record<string, TarType> = {
  "0": "file",
  "\0": "file",
  "7": "file",
  "1": "hardlink",
  "2": "symlink",
  "3": "char",
  "4": "block",
  "5": "dir",
  "6": "fifo",
};

/** `label` names the archive in errors. The stream is read to its end, beyond the end mark */
export async function* readTar(source: AsyncIterable<Buffer>, label: string): AsyncGenerator<TarEntry> {
  const input = new ByteSource(source, () => invalid(label, "it ends in the middle of an entry"));
  try {
    let globals = new Map<string, Buffer>();
    let extended = new Map<string, Buffer>();
    let longPath: string | undefined;
    let longLink: string | undefined;
    for (;;) {
      const block = (await input.isAtEnd()) ? undefined : await input.take(BLOCK);
      if (block === undefined || block.every((byte) => byte === 0)) break;
      const raw = decodeHeader(block, label);
      if (raw.flag === "x" || raw.flag === "g" || raw.flag === "L" || raw.flag === "K") {
        if (raw.size > MAX_EXTENDED_HEADER) throw invalid(label, "an extended header is larger than 1 MiB");
        const data = await input.take(raw.size);
        await input.skip(padding(raw.size));
        if (raw.flag === "x") extended = decodePax(data, label);
        else if (raw.flag === "g") globals = new Map([...globals, ...decodePax(data, label)].filter(([key]) => GLOBAL_KEYS.has(key)));
        else if (raw.flag === "L") longPath = cString(data);
        else longLink = cString(data);
        continue;
      }
      const header = complete(raw, new Map([...globals, ...extended]), longPath, longLink, label);
      extended = new Map();
      longPath = longLink = undefined;
      const entry = new Body(input, header.size);
      yield { header, offset: input.offset, body: () => entry.read() };
      await entry.skip();
    }
    await input.drain();
  } finally {
    await input.close();
  }
}

type RawHeader = Omit<TarHeader, "type" | "xattrs"> & { flag: string };

function decodeHeader(block: Buffer, label: string): RawHeader {
  let sum = 8 * 32;
  for (let i = 0; i < BLOCK; i++) if (i < 148 || i >= 156) sum += block[i] ?? 0;
  if (sum !== number(block, 148, 8, label)) throw invalid(label, "a header has a wrong checksum");
  const name = cString(block.subarray(0, 100));
  const isUstar = block.subarray(257, 263).toString("latin1") === "ustar\0";
  const prefix = isUstar ? cString(block.subarray(345, 500)) : "";
  return {
    path: prefix === "" ? name : `${prefix}/${name}`,
    flag: String.fromCharCode(block[156] ?? 0),
    mode: number(block, 100, 8, label) & 0o7777,
    uid: number(block, 108, 8, label),
    gid: number(block, 116, 8, label),
    size: number(block, 124, 12, label),
    mtime: number(block, 136, 12, label),
    linkname: cString(block.subarray(157, 257)),
    major: number(block, 329, 8, label),
    minor: number(block, 337, 8, label),
  };
}

function complete(
  raw: RawHeader,
  pax: ReadonlyMap<string, Buffer>,
  longPath: string | undefined,
  longLink: string | undefined,
  label: string,
): TarHeader {
  const text = (key: string): string | undefined => pax.get(key)?.toString("latin1");
  const value = (key: string, fallback: number): number => {
    const given = text(key);
    if (given === undefined) return fallback;
    const parsed = /^-?\d{1,16}(\.\d*)?$/.test(given) ? Math.trunc(Number(given)) : Number.NaN;
    if (!Number.isSafeInteger(parsed)) throw invalid(label, `an extended header has a wrong ${key}`);
    return parsed;
  };
  const path = text("path") ?? longPath ?? raw.path;
  const type = TYPES[raw.flag];
  if (type === undefined || [...pax.keys()].some((key) => key.startsWith("GNU.sparse."))) {
    throw invalid(label, `entry ${showPath(path)} is of an unsupported kind (${JSON.stringify(raw.flag)})`);
  }
  const attributes = [...pax].filter(([key]) => key.startsWith(XATTR));
  const isLink = type === "hardlink" || type === "symlink";
  const linkname = isLink ? (text("linkpath") ?? longLink ?? raw.linkname) : "";
  if (path.length > MAX_PATH || linkname.length > MAX_PATH)
    throw invalid(label, `entry ${showPath(path)} has a path or a link longer than ${MAX_PATH} bytes`);
  const size = value("size", raw.size);
  const uid = value("uid", raw.uid);
  const gid = value("gid", raw.gid);
  if (size < 0 || uid < 0 || gid < 0 || uid > 0xffffffff || gid > 0xffffffff)
    throw invalid(label, `entry ${showPath(path)} has a size or owner out of range`);
  const isDevice = type === "char" || type === "block";
  if (isDevice && (raw.major > MAX_DEVICE || raw.minor > MAX_DEVICE))
    throw invalid(label, `entry ${showPath(path)} has a device number out of range`);
  const isOldDir = type === "file" && path.endsWith("/");
  const hasBody = type === "file" && !isOldDir;
  // Some archives give a hard link the size of its target without storing content.
  return {
    path,
    type: isOldDir ? "dir" : type,
    mode: raw.mode,
    uid,
    gid,
    size: hasBody ? size : 0,
    mtime: Math.min(Math.max(value("mtime", raw.mtime), 0), 0xffffffff),
    linkname,
    // Other kinds have no device number: a large one would overflow into the fields behind it when it is written.
    major: isDevice ? raw.major : 0,
    minor: isDevice ? raw.minor : 0,
    xattrs: attributes.length === 0 ? NO_XATTRS : new Map(attributes.map(([key, data]) => [key.slice(XATTR.length), data])),
  };
}

function number(block: Buffer, at: number, length: number, label: string): number {
  const field = block.subarray(at, at + length);
  const first = field[0] ?? 0;
  if (first & 0x80) {
    if (first !== 0x80) return 0;
    const value = field.subarray(1).reduce((sum, byte) => sum * 256 + byte, 0);
    if (!Number.isSafeInteger(value)) throw invalid(label, "a header holds a number out of range");
    return value;
  }
  const text = cString(field).trim();
  if (text === "") return 0;
  if (!/^[0-7]+$/.test(text)) throw invalid(label, "a header holds something else than a number");
  return Number.parseInt(text, 8);
}

function decodePax(data: Buffer, label: string): Map<string, Buffer> {
  const records = new Map<string, Buffer>();
  for (let at = 0; at < data.length;) {
    const space = data.indexOf(0x20, at);
    const length = space < 0 ? Number.NaN : Number(data.subarray(at, space).toString("latin1"));
    const equals = data.indexOf(0x3d, space);
    const end = at + length;
    if (!Number.isSafeInteger(length) || end > data.length || equals < 0 || equals >= end || data[end - 1] !== 0x0a)
      throw invalid(label, "an extended header is malformed");
    records.set(data.subarray(space + 1, equals).toString("latin1"), Buffer.from(data.subarray(equals + 1, end - 1)));
    at = end;
  }
  return records;
}

function cString(data: Buffer): string {
  const end = data.indexOf(0);
  return data.subarray(0, end < 0 ? data.length : end).toString("latin1");
}

function padding(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}

/** A path of an archive as printable text */
export function showPath(path: string): string {
  return JSON.stringify(Buffer.from(path, "latin1").toString("utf8").slice(0, 300));
}

function invalid(label: string, why: string): ForkdError {
  return new ForkdError("IMAGE_INVALID", `Cannot read ${label}: ${why}.`);
}

class Body {
  readonly #input: ByteSource;
  #left: number;
  readonly #pad: number;
  #done = false;

  constructor(input: ByteSource, size: number) {
    this.#input = input;
    this.#left = size;
    this.#pad = padding(size);
  }

  async *read(): AsyncGenerator<Buffer> {
    while (this.#left > 0) {
      const chunk = await this.#input.some(this.#left);
      this.#left -= chunk.length;
      yield chunk;
    }
  }

  async skip(): Promise<void> {
    if (this.#done) return;
    this.#done = true;
    await this.#input.skip(this.#left + this.#pad);
  }
}
