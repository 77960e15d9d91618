// Index of the members of an uncompressed tar, for random access.

import { createReadStream } from "node:fs";
import { posix } from "node:path";
import { Readable } from "node:stream";
import { ForkdError } from "../errors.ts";
import { MAX_ENTRIES, MAX_TREE_BYTES, type Layer } from "./layers.ts";
import type { ImageConfig } from "./manifest.ts";
import { readTar } from "../archive/tar-read.ts";

/** The files of an image archive or layout, by their path in it */
export type ArchiveFiles = {
  /** name of the archive in errors */
  label: string;
  open: (name: string) => Promise<Readable>;
  /** undefined when the file does not exist */
  size: (name: string) => Promise<number | undefined>;
};

/** The content of an archive to import */
export type ImportedImage = { format: "docker-archive" | "oci-layout" | "rootfs"; config: ImageConfig; layers: Layer[] };

/** Memory of an index entry in addition to its name */
const MEMBER_BYTES = 256;

type Member = { offset: number; size: number };

/** Docker stores a repeated layer as a symbolic link to the first */
export async function indexArchive(tar: string, label: string, signal: AbortSignal | undefined): Promise<ArchiveFiles> {
  const members = new Map<string, Member>();
  const links = new Map<string, string>();
  let bytes = 0;
  const source = createReadStream(tar, { highWaterMark: 1 << 20, signal });
  for await (const { header, offset } of readTar(source, label)) {
    bytes += MEMBER_BYTES + header.path.length + header.linkname.length;
    if (members.size + links.size > MAX_ENTRIES || bytes > MAX_TREE_BYTES)
      throw new ForkdError("IMAGE_TOO_LARGE", `Refused ${label}: it has more than ${MAX_ENTRIES} entries, or names too long for so many.`);
    const name = posix.normalize(header.path);
    if (header.type === "file") members.set(name, { offset, size: header.size });
    else if (header.type === "symlink" || header.type === "hardlink") {
      links.set(name, header.type === "symlink" ? posix.join(posix.dirname(name), header.linkname) : posix.normalize(header.linkname));
    }
  }
  const find = (name: string): Member | undefined => {
    const path = posix.normalize(name);
    return members.get(path) ?? members.get(links.get(path) ?? "");
  };
  return {
    label,
    size: async (name) => find(name)?.size,
    open: async (name) => {
      const member = find(name);
      if (member === undefined) throw new ForkdError("IMAGE_INVALID", `Cannot use ${label}: it holds no file ${JSON.stringify(name)}.`);
      return readRange(tar, member);
    },
  };
}

function readRange(tar: string, member: Member): Readable {
  if (member.size === 0) return Readable.from([]);
  return createReadStream(tar, { start: member.offset, end: member.offset + member.size - 1, highWaterMark: 1 << 20 });
}

/** A complete small member */
export async function readMember(files: ArchiveFiles, name: string, limit: number): Promise<Buffer> {
  const size = await files.size(name);
  if (size === undefined) throw new ForkdError("IMAGE_INVALID", `Cannot use ${files.label}: it holds no file ${JSON.stringify(name)}.`);
  if (size > limit) throw new ForkdError("IMAGE_INVALID", `Cannot use ${files.label}: its ${name} is larger than ${limit} bytes.`);
  if (size === 0) return Buffer.alloc(0);
  const chunks: Buffer[] = [];
  let total = 0;
  for await (const chunk of await files.open(name)) {
    total += (chunk as Buffer).length;
    if (total > limit) throw new ForkdError("IMAGE_INVALID", `Cannot use ${files.label}: its ${name} is larger than ${limit} bytes.`);
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks);
}

/** A stream whose source is opened at the first read */
export function lazyStream(open: () => Promise<Readable>): Readable {
  async function* content(): AsyncGenerator<Buffer> {
    yield* (await open()) as AsyncIterable<Buffer>;
  }
  return Readable.from(content(), { objectMode: false, highWaterMark: 1 << 20 });
}
