// Packs host files into a tar owned by root, for the COPY step of a build.

import { createReadStream, createWriteStream } from "node:fs";
import { lstat, readdir, readlink, stat } from "node:fs/promises";
import { basename, join, posix, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { ForkdError, messageOf } from "../errors.ts";
import { encodeHeader, endOfTar, paddingOf, rootHeader } from "./tar-write.ts";
import type { TarHeader, TarType } from "./tar-read.ts";

export type CopySpec = {
  /** file or folder of the host; of a folder, its content is copied */
  from: string;
  /** absolute path in the image; with a trailing slash, a file keeps its name in that folder */
  to: string;
};

/** Checks every entry before the build starts */
export async function checkCopies(copies: readonly CopySpec[]): Promise<void> {
  for (const copy of copies) {
    if (!copy.to.startsWith("/") || copy.to.includes("\0") || copy.to.split("/").includes("..")) {
      throw new ForkdError("BAD_REQUEST", `Cannot copy to ${JSON.stringify(copy.to)}: it must be an absolute path without '..'.`);
    }
    try {
      const info = await stat(copy.from);
      if (!info.isFile() && !info.isDirectory())
        throw new ForkdError("BAD_REQUEST", `Cannot copy ${copy.from}: it is neither a file nor a folder.`);
    } catch (error) {
      if (error instanceof ForkdError) throw error;
      throw new ForkdError("BAD_REQUEST", `Cannot copy ${copy.from}: ${messageOf(error)}.`, { cause: error });
    }
  }
}

/** Writes the tar in a fixed order, so that equal files give an equal tar */
export async function writeCopyTar(
  copies: readonly CopySpec[],
  path: string,
  opts: { maxBytes: number; signal?: AbortSignal | undefined },
): Promise<void> {
  await pipeline(tarOf(copies, opts), createWriteStream(path));
}

type Budget = { maxBytes: number; used?: number; signal?: AbortSignal | undefined };

async function* tarOf(copies: readonly CopySpec[], budget: Budget): AsyncGenerator<Buffer> {
  for (const copy of copies) {
    const from = resolve(copy.from);
    const to = posix.normalize(copy.to).replace(/^\/+/, "");
    if ((await stat(from)).isDirectory()) yield* addTree(from, to.replace(/\/+$/, ""), budget);
    else yield* addFile(from, to === "" || to.endsWith("/") ? `${to}${basename(from)}` : to, budget);
  }
  yield endOfTar();
}

async function* addTree(dir: string, to: string, budget: Budget): AsyncGenerator<Buffer> {
  budget.signal?.throwIfAborted();
  if (to !== "") yield encodeHeader(await headerOf(dir, to, "dir"));
  for (const name of (await readdir(dir)).toSorted()) {
    const path = join(dir, name);
    const target = to === "" ? name : `${to}/${name}`;
    const info = await lstat(path);
    if (info.isDirectory()) yield* addTree(path, target, budget);
    else if (info.isSymbolicLink())
      yield encodeHeader({ ...(await headerOf(path, target, "symlink")), linkname: latin1(await readlink(path)) });
    else if (info.isFile()) yield* addFile(path, target, budget);
    else throw new ForkdError("BAD_REQUEST", `Cannot copy ${path}: it is neither a file, a folder nor a symbolic link.`);
  }
}

async function* addFile(path: string, to: string, budget: Budget): AsyncGenerator<Buffer> {
  budget.signal?.throwIfAborted();
  const { size } = await stat(path);
  budget.used = (budget.used ?? 0) + size;
  if (budget.used > budget.maxBytes)
    throw new ForkdError("IMAGE_TOO_LARGE", `Cannot copy ${path}: the files to copy are larger than ${budget.maxBytes} bytes.`);
  yield encodeHeader({ ...(await headerOf(path, to, "file")), size });
  let left = size;
  if (size > 0) {
    // A file that grows while it is read is cut at the size in its header.
    for await (const chunk of createReadStream(path, { end: size - 1, signal: budget.signal })) {
      left -= (chunk as Buffer).length;
      yield chunk as Buffer;
    }
  }
  if (left > 0) throw new ForkdError("BAD_REQUEST", `Cannot copy ${path}: it became shorter while it was read.`);
  yield paddingOf(size);
}

async function headerOf(path: string, to: string, type: TarType): Promise<TarHeader> {
  const info = await (type === "file" ? stat(path) : lstat(path));
  return rootHeader({ path: latin1(to), type, mode: info.mode & 0o7777, mtime: Math.max(0, Math.floor(info.mtimeMs / 1000)) });
}

/** Tar headers carry names byte for byte */
function latin1(text: string): string {
  return Buffer.from(text, "utf8").toString("latin1");
}
