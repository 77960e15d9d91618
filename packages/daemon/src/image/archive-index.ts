// Finds the members of a plain tar, so that they can be read in any order.

import { createReadStream } from "node:fs";
import { posix } from "node:path";
import { Readable } from "node:stream";
import { ForkdError } from "../errors.ts";
import { MAX_ENTRIES } from "./layers.ts";
import { readTar } from "./tar-read.ts";

/** The files of an image archive or layout, by their path in it */
export type ArchiveFiles = {
  /** names the archive in errors */
  label: string;
  open: (name: string) => Promise<Readable>;
  /** undefined when there is no such file */
  size: (name: string) => Promise<number | undefined>;
};

type Member = { offset: number; size: number };

/** Docker stores a layer that occurs twice as a symbolic link to the first */
export async function indexArchive(tar: string, label: string, signal: AbortSignal | undefined): Promise<ArchiveFiles> {
  const members = new Map<string, Member>();
  const links = new Map<string, string>();
  const source = createReadStream(tar, { highWaterMark: 1 << 20, signal });
  for await (const { header, offset } of readTar(source, label)) {
    if (members.size + links.size > MAX_ENTRIES)
      throw new ForkdError("IMAGE_TOO_LARGE", `Refused ${label}: it has more than ${MAX_ENTRIES} entries.`);
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

/** A whole small member */
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
