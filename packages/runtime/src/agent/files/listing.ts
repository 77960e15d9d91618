// Lists a folder of the guest in pages.

import { isUtf8 } from "node:buffer";
import { CodecError, Reader } from "../../util/codec.ts";
import type { AgentConnection } from "../wire/connection.ts";
import { deed } from "./error.ts";
import { readInfo, type FileInfo, type FileOptions } from "./content.ts";
import { GrowingBuffer } from "../../util/growing-buffer.ts";
import { pathBytes, pathText } from "./path.ts";
import { runTool } from "./tool.ts";

/** Bound for an answer; the agent ends a page at half of it */
const MAX_PAGE_BYTES = 16 * 1024 * 1024;

export type ListedFile = FileInfo & {
  /** absolute, as every call accepts it */
  path: string;
  name: string;
  /** only for names that are not UTF-8: there `name` is lossy */
  nameBase64: string | undefined;
  /** why the folder could not be read */
  errno: string | undefined;
};

export type ListOptions = FileOptions & {
  /** 1: only the folder's own entries */
  depth: number;
  limit: number;
  /** cursor of the previous page */
  cursor?: string | undefined;
};

export type FilePage = { files: ListedFile[]; cursor: string | null };

/** Entries in the order of their paths, a folder before its entries; links are not followed */
export async function listFiles(agent: AgentConnection, path: string, opts: ListOptions): Promise<FilePage> {
  const { depth, limit, cursor, user, signal } = opts;
  const folder = pathBytes(path);
  const output = new GrowingBuffer();
  const after = Buffer.from(cursor ?? "", "base64url");
  const argv = ["list", folder, String(depth), String(limit), after];
  await runTool(
    agent,
    { what: deed("list", path), argv, user, signal },
    {
      onOutput: (bytes) => {
        if (!output.add(bytes, MAX_PAGE_BYTES)) throw new CodecError(`a page of more than ${MAX_PAGE_BYTES} bytes`);
      },
    },
  );
  return readPage(output.bytes(), { folder, limit, after });
}

function readPage(bytes: Buffer, { folder, limit, after }: { folder: Buffer; limit: number; after: Buffer }): FilePage {
  const reader = new Reader(bytes);
  const files: ListedFile[] = [];
  let last = after;
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
      const path = reader.bytes();
      // A caller that requests page after page would never reach the end.
      if (!comesAfter(path, last)) throw new CodecError("files are not in order");
      last = path;
      files.push({ ...namesOf(folder, last), ...readInfo(reader), errno: undefined });
    } else {
      throw new CodecError(`a record ${JSON.stringify(record)} in a list of ${files.length} files`);
    }
  }
}

/** Order of a walk: names by their bytes, a folder before its entries */
function comesAfter(path: Buffer, other: Buffer): boolean {
  const weight = (byte: number | undefined): number => (byte === undefined ? -2 : byte === 0x2f ? -1 : byte);
  for (let at = 0; at < path.length; at++) {
    const difference = weight(path[at]) - weight(other[at]);
    if (difference !== 0) return difference > 0;
  }
  return false;
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
