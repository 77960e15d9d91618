// What a folder of the guest holds, a page at a time.

import { isUtf8 } from "node:buffer";
import { CodecError, Reader } from "./codec.ts";
import type { AgentConnection } from "./connection.ts";
import { deed } from "./file-error.ts";
import { readInfo, type FileInfo, type FileOptions } from "./files.ts";
import { GrowingBuffer } from "./growing-buffer.ts";
import { pathBytes, pathText } from "./guest-path.ts";
import { runTool } from "./tool.ts";

/** The agent ends a page at half of it */
const MAX_PAGE_BYTES = 16 * 1024 * 1024;

export type ListedFile = FileInfo & {
  /** absolute, as every call takes it */
  path: string;
  name: string;
  /** only of names that are not UTF-8, whose `name` is not exact */
  nameBase64: string | undefined;
  /** why what it holds could not be read */
  errno: string | undefined;
};

export type ListOptions = FileOptions & {
  /** 1: only what is in the folder itself */
  depth: number;
  limit: number;
  /** of the page before */
  cursor?: string | undefined;
};

export type FilePage = { files: ListedFile[]; cursor: string | null };

/** Entries in the order of their paths, a folder before what it holds; links are not followed */
export async function listFiles(agent: AgentConnection, path: string, opts: ListOptions): Promise<FilePage> {
  const { depth, limit, cursor, user, signal } = opts;
  const folder = pathBytes(path);
  const output = new GrowingBuffer();
  const argv = ["list", folder, String(depth), String(limit), Buffer.from(cursor ?? "", "base64url")];
  await runTool(
    agent,
    { what: deed("list", path), argv, user, signal },
    {
      onOutput: (bytes) => {
        if (!output.add(bytes, MAX_PAGE_BYTES)) throw new CodecError(`a page of more than ${MAX_PAGE_BYTES} bytes`);
      },
    },
  );
  return readPage(output.bytes(), folder, limit);
}

function readPage(bytes: Buffer, folder: Buffer, limit: number): FilePage {
  const reader = new Reader(bytes);
  const files: ListedFile[] = [];
  let last: Buffer = Buffer.alloc(0);
  for (;;) {
    const record = String.fromCharCode(reader.u8());
    if (record === ".") {
      const hasMore = reader.u8() === 1 && files.length > 0;
      return { files, cursor: hasMore ? last.toString("base64url") : null };
    }
    if (record === "!") {
      const errno = reader.str();
      const closed = files.at(-1);
      if (closed) closed.errno = errno;
    } else if (record === "+" && files.length < limit) {
      last = reader.bytes();
      files.push({ ...namesOf(folder, last), ...readInfo(reader), errno: undefined });
    } else {
      throw new CodecError(`a record ${JSON.stringify(record)} in a list of ${files.length} files`);
    }
  }
}

function namesOf(folder: Buffer, below: Buffer): Pick<ListedFile, "path" | "name" | "nameBase64"> {
  const slash = folder.at(-1) === 0x2f ? "" : "/";
  const name = below.subarray(below.lastIndexOf(0x2f) + 1);
  return {
    path: pathText(Buffer.concat([folder, Buffer.from(slash), below])),
    name: name.toString(),
    nameBase64: isUtf8(name) ? undefined : name.toString("base64"),
  };
}
