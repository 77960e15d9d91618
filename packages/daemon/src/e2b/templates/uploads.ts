// Uploaded template files: received before a build, cached for later builds.

import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { access, mkdir, open, readdir, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createGunzip } from "node:zlib";
import { ForkdError } from "@forkd/runtime/errors";
import { syncPath } from "@forkd/runtime/util/sync-path";
import { DEFAULT_PROJECT } from "../../store/project-names.ts";

const MAX_BYTES = 8 * 1024 * 1024 * 1024;
/** Files unused for this time are removed */
const KEEP_MS = 7 * 24 * 3_600_000;
/** Total limit; the least recently used files are removed first */
const MAX_FILES = 256;
const MAX_KEPT_BYTES = 32 * 1024 * 1024 * 1024;
/** Parallel uploads: each can use MAX_BYTES */
const MAX_AT_ONCE = 4;
/** Name of an incomplete file */
const TEMPORARY = /\.tmp$/;
const GZIP_MAGIC = Buffer.from([0x1f, 0x8b]);

export class Uploads {
  readonly #folder: string;
  #receiving = 0;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async has(project: string, template: string, hash: string): Promise<boolean> {
    try {
      await access(this.#path(project, template, hash));
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
      throw error;
    }
  }

  /** Atomic: the file appears complete or not at all */
  async write(project: string, template: string, hash: string, content: AsyncIterable<Uint8Array>): Promise<void> {
    if (this.#receiving >= MAX_AT_ONCE)
      throw new ForkdError("BUSY", `Cannot take the files of a step: ${MAX_AT_ONCE} others are being received.`);
    this.#receiving++;
    const path = this.#path(project, template, hash);
    const temporary = `${path}.${randomBytes(8).toString("hex")}.tmp`;
    try {
      const isNew = (await mkdir(this.#folder, { recursive: true, mode: 0o700 })) !== undefined;
      if (isNew) await syncPath(dirname(this.#folder));
      // not a write stream: one that is destroyed early can still create the file after its removal
      await writeFile(temporary, bounded(content), { mode: 0o600, flag: "wx", flush: true });
      await rename(temporary, path);
      // sync before the response: the client sends a file only once, so a power failure must not lose it
      await syncPath(this.#folder);
      await this.#prune();
    } finally {
      this.#receiving--;
      await rm(temporary, { force: true });
    }
  }

  /** Digest of the archive. The client's hash is only its name: two clients can use one hash for different files */
  async digest(project: string, template: string, hash: string): Promise<string> {
    const content = createHash("sha256");
    for await (const chunk of await this.read(project, template, hash)) content.update(chunk);
    return content.digest("hex");
  }

  /** The archive, decompressed if necessary */
  async read(project: string, template: string, hash: string): Promise<AsyncIterable<Uint8Array>> {
    const path = this.#path(project, template, hash);
    if (!(await this.has(project, template, hash))) throw new ForkdError("NOT_FOUND", `The files of a step were not sent: ${hash}.`);
    const now = new Date();
    await utimes(path, now, now);
    const file = createReadStream(path);
    if (!(await isGzip(path))) return file;
    const unpacked = createGunzip();
    file.once("error", (error) => unpacked.destroy(error));
    return file.pipe(unpacked);
  }

  /** Hashes the client's names, which could otherwise contain path separators */
  #path(project: string, template: string, hash: string): string {
    // those of the default project have the names of earlier versions
    const name = project === DEFAULT_PROJECT ? `${template}\0${hash}` : `${project}\0${template}\0${hash}`;
    return join(this.#folder, createHash("sha256").update(name).digest("hex"));
  }

  async #prune(): Promise<void> {
    const found = await Promise.all((await readdir(this.#folder)).map(async (name) => fileAt(join(this.#folder, name))));
    let files = 0;
    let bytes = 0;
    for (const { path, mtimeMs, size } of found.flatMap((file) => file ?? []).toSorted((a, b) => b.mtimeMs - a.mtimeMs)) {
      const isOld = Date.now() - mtimeMs > KEEP_MS;
      // skip active uploads, which have their own limit; an old temporary file is a leftover of an earlier daemon
      if (TEMPORARY.test(path) && !isOld) continue;
      files++;
      bytes += size;
      if (isOld || files > MAX_FILES || bytes > MAX_KEPT_BYTES) await rm(path, { force: true });
    }
  }
}

async function fileAt(path: string): Promise<{ path: string; mtimeMs: number; size: number } | undefined> {
  try {
    const { mtimeMs, size } = await stat(path);
    return { path, mtimeMs, size };
  } catch (error) {
    // a concurrent upload removed the file
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

async function* bounded(content: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let length = 0;
  for await (const piece of content) {
    length += piece.length;
    if (length > MAX_BYTES) throw new ForkdError("TOO_LARGE", `Cannot keep the files of a step: they are larger than ${MAX_BYTES} bytes.`);
    yield piece;
  }
}

async function isGzip(path: string): Promise<boolean> {
  await using file = await open(path, "r");
  const { buffer } = await file.read(Buffer.alloc(GZIP_MAGIC.length), 0, GZIP_MAGIC.length, 0);
  return buffer.equals(GZIP_MAGIC);
}
