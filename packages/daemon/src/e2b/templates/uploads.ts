// Files that the steps of a template copy: sent before the build, kept for the next one.

import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { access, mkdir, open, readdir, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createGunzip } from "node:zlib";
import { ForkdError } from "../../errors.ts";

const MAX_BYTES = 8 * 1024 * 1024 * 1024;
/** What no build used for so long is sent again */
const KEEP_MS = 7 * 24 * 3_600_000;
const GZIP_MAGIC = Buffer.from([0x1f, 0x8b]);

export class Uploads {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async has(template: string, hash: string): Promise<boolean> {
    try {
      await access(this.#path(template, hash));
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return false;
      throw error;
    }
  }

  /** Is there whole or not at all */
  async write(template: string, hash: string, content: AsyncIterable<Uint8Array>): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    await this.#prune();
    const path = this.#path(template, hash);
    const temporary = `${path}.${randomBytes(8).toString("hex")}.tmp`;
    try {
      // not a stream: one that breaks off early can still make the file after it was removed
      await writeFile(temporary, bounded(content), { mode: 0o600, flag: "wx" });
      await rename(temporary, path);
    } finally {
      await rm(temporary, { force: true });
    }
  }

  /** The archive, unpacked where it is packed */
  async read(template: string, hash: string): Promise<AsyncIterable<Uint8Array>> {
    const path = this.#path(template, hash);
    if (!(await this.has(template, hash))) throw new ForkdError("NOT_FOUND", `The files of a step were not sent: ${hash}.`);
    const now = new Date();
    await utimes(path, now, now);
    const file = createReadStream(path);
    if (!(await isGzip(path))) return file;
    const unpacked = createGunzip();
    file.once("error", (error) => unpacked.destroy(error));
    return file.pipe(unpacked);
  }

  /** Names come from clients: none becomes a path as it is */
  #path(template: string, hash: string): string {
    return join(this.#folder, createHash("sha256").update(`${template}\0${hash}`).digest("hex"));
  }

  async #prune(): Promise<void> {
    for (const name of await readdir(this.#folder)) {
      const path = join(this.#folder, name);
      const { mtimeMs } = await stat(path).catch((error: NodeJS.ErrnoException) => {
        // another upload was faster
        if (error.code !== "ENOENT") throw error;
        return { mtimeMs: Infinity };
      });
      if (Date.now() - mtimeMs > KEEP_MS) await rm(path, { force: true });
    }
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
