// The guest's view of a host folder: read-only; only files, folders and links; nothing outside of it.

import { constants, type BigIntStats } from "node:fs";
import { lstat, opendir, readlink } from "node:fs/promises";
import { Semaphore } from "../util/semaphore.ts";
import { below, Handles } from "./handles.ts";
import { isHidden, type Hidden } from "./hidden.ts";
import { dropLists, keepList, takeList } from "./lists.ts";
import { ENTRY_BYTES, Errno, type Attributes, type Entry } from "./record.ts";

export const LARGEST_READ: number = 256 * 1024;
const LARGEST_LIST = 64 * 1024;
const LONGEST_NAME = 255;
/** A longer list is refused, so that no folder fills the daemon's memory; no guest needs as many */
const MOST_NAMES = 200_000;
/** Of libuv's threads for file operations: a disk that hangs must not block the daemon */
const AT_ONCE = 2;

const turns = new Semaphore(AT_ONCE);

export class ShareTree {
  readonly #handles: Handles;
  readonly #hidden: Hidden;

  /** @param root real path, without links */
  constructor(root: string, hidden: Hidden) {
    this.#hidden = hidden;
    this.#handles = new Handles(root, hidden);
  }

  async stat(path: Buffer): Promise<Attributes> {
    const names = namesIn(path);
    return turns.run(async () => {
      const name = names.pop();
      if (!name) return this.#handles.folder([], async (_at, handle) => this.#shown(await handle.stat({ bigint: true })));
      return this.#handles.folder(names, async (at) => this.#shown(await lstat(below(at, name), { bigint: true })));
    });
  }

  /** Up to `size` bytes of the file with this inode */
  async read(path: Buffer, range: { inode: bigint; offset: bigint; size: number }): Promise<Buffer> {
    const names = namesIn(path);
    const { inode, offset, size } = range;
    if (size > LARGEST_READ || offset > BigInt(Number.MAX_SAFE_INTEGER - size)) throw new Errno("EINVAL");
    return turns.run(async () =>
      this.#handles.file(names, inode, async (handle) => {
        const content = Buffer.allocUnsafe(size);
        let length = 0;
        while (length < size) {
          const { bytesRead } = await handle.read(content, length, size - length, Number(offset) + length);
          if (bytesRead === 0) break;
          length += bytesRead;
        }
        return content.subarray(0, length);
      }),
    );
  }

  async readLink(path: Buffer): Promise<Buffer> {
    const names = namesIn(path);
    const name = names.pop();
    if (!name) throw new Errno("EINVAL");
    return turns.run(async () => this.#handles.folder(names, async (at) => readlink(below(at, name), { encoding: "buffer" })));
  }

  /** A part of a folder from a position in its list, up to `size` bytes; names removed meanwhile are left out */
  async list(path: Buffer, offset: bigint, size: number): Promise<{ entries: Entry[]; complete: boolean }> {
    const names = namesIn(path);
    const from = Number(offset);
    return turns.run(async () =>
      this.#handles.folder(names, async (at) => {
        const key = path.toString("latin1");
        // a new listing of an unchanged folder has the same order
        const all = (from > 0 && takeList(this, key)) || (await readNames(at));
        const entries: Entry[] = [];
        let room = Math.min(size, LARGEST_LIST);
        let next = from;
        while (next < all.length) {
          const name = all[next];
          if (!name) break;
          room -= ENTRY_BYTES + name.length;
          if (room < 0 && entries.length > 0) break;
          next++;
          const attributes = await this.#attributesAt(at, name);
          if (attributes) entries.push({ next, name, attributes });
        }
        const complete = next >= all.length;
        if (!complete) keepList(this, key, all);
        return { entries, complete };
      }),
    );
  }

  close(): void {
    this.#handles.close();
    dropLists(this);
  }

  async #attributesAt(at: string, name: Buffer): Promise<Attributes | undefined> {
    try {
      return this.#shown(await lstat(below(at, name), { bigint: true }));
    } catch (error) {
      if (error instanceof Errno || (error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
  }

  #shown(found: BigIntStats): Attributes {
    const isShown = found.isFile() || found.isDirectory() || found.isSymbolicLink();
    if (!isShown || isHidden(this.#hidden, found)) throw new Errno("ENOENT");
    return {
      inode: found.ino,
      size: found.size,
      blocks: found.blocks,
      accessed: found.atimeNs,
      modified: found.mtimeNs,
      changed: found.ctimeNs,
      mode: Number(found.mode) & (constants.S_IFMT | 0o777),
      links: Number(found.nlink),
    };
  }
}

/** The components of a path below a share; none of them can lead upwards */
function namesIn(path: Buffer): Buffer[] {
  if (path.length === 0) return [];
  if (path.includes(0)) throw new Errno("EINVAL");
  const names: Buffer[] = [];
  for (let at = 0; at <= path.length;) {
    const slash = path.indexOf("/", at);
    const end = slash < 0 ? path.length : slash;
    names.push(path.subarray(at, end));
    at = end + 1;
  }
  for (const name of names) {
    if (name.length > LONGEST_NAME) throw new Errno("ENAMETOOLONG");
    if (name.length === 0 || name.equals(DOT) || name.equals(DOT_DOT)) throw new Errno("EINVAL");
  }
  return names;
}

const DOT = Buffer.from(".");
const DOT_DOT = Buffer.from("..");

async function readNames(at: string): Promise<Buffer[]> {
  // @types/node lacks Buffer here, which Node accepts and returns
  const folder = await opendir(at, { encoding: "buffer" as BufferEncoding, bufferSize: 1024 });
  const names: Buffer[] = [];
  for await (const entry of folder) {
    names.push(entry.name as unknown as Buffer);
    if (names.length > MOST_NAMES) throw new Errno("EOVERFLOW");
  }
  return names;
}
