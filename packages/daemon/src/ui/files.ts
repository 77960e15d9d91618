// Files of the dashboard, as `make setup` builds them. They contain no secrets and need no login.

import { readdir, readFile } from "node:fs/promises";
import { extname, join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { ForkdError } from "@forkd/runtime/errors";

const FOLDER = resolve(import.meta.dirname, "..", "..", "..", "..", "dist", "ui");
const INDEX = "index.html";
const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

export type UiFile = { type: string; bytes: Buffer; zipped: Buffer; isHashed: boolean };

export class UiFiles {
  readonly #folder: string;
  #files: Promise<ReadonlyMap<string, UiFile>> | undefined;

  constructor(folder: string = FOLDER) {
    this.#folder = folder;
  }

  /** A built file, or the page itself for all other paths: the page has an address of its own for each view */
  async get(path: string): Promise<UiFile> {
    this.#files ??= load(this.#folder);
    let files: ReadonlyMap<string, UiFile>;
    try {
      files = await this.#files;
    } catch (error) {
      // a later request finds the files of a set-up that ran meanwhile
      this.#files = undefined;
      throw error;
    }
    const name = /^\/ui\/assets\/([\w.-]+)$/.exec(path)?.[1];
    const file = files.get(name ?? INDEX);
    if (file) return file;
    throw new ForkdError("NOT_FOUND", "The dashboard has no such file.", { hint: "Reload the page: forkd may have been updated." });
  }
}

async function load(folder: string): Promise<ReadonlyMap<string, UiFile>> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException): string[] => {
    if (error.code === "ENOENT") return [];
    throw error;
  });
  if (!names.includes(INDEX))
    throw new ForkdError("NOT_FOUND", "The dashboard is not built.", { hint: "Run 'make setup' in the folder of forkd." });
  const files = await Promise.all(
    names.map(async (name): Promise<[string, UiFile]> => {
      const bytes = await readFile(join(folder, name));
      const type = TYPES[extname(name)] ?? "application/octet-stream";
      return [name, { type, bytes, zipped: gzipSync(bytes, { level: 9 }), isHashed: name !== INDEX }];
    }),
  );
  return new Map(files);
}
