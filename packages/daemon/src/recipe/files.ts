// Recipe files from an uploaded archive or a host folder, as one table of entries.
// Uploads are never unpacked on the host, so their names and links cannot escape to it.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { lstat, open, readdir, readlink } from "node:fs/promises";
import { join, posix } from "node:path";
import { ForkdError } from "@forkd/runtime/errors";
import { readTar, showPath } from "@forkd/runtime/archive/tar-read";
import { encodeHeader, endOfTar, paddingOf, rootHeader } from "@forkd/runtime/archive/tar-write";

const MODE_BITS = 0o777;
const FOLDER_MODE = 0o755;
const MAX_ENTRIES = 100_000;
const MAX_UPLOAD_BYTES = 8 * 1024 ** 3;
/** Maximum length of a symlink chain */
const MAX_LINKS = 8;
const CHUNK = 1 << 20;

/** Paths and link targets have one Latin-1 character per byte, as in archives */
type Entry =
  | { kind: "file"; mode: number; size: number; open: () => AsyncIterable<Buffer> }
  | { kind: "folder"; mode: number }
  | { kind: "link"; target: string };

export class RecipeFiles {
  readonly #entries: ReadonlyMap<string, Entry>;

  private constructor(entries: ReadonlyMap<string, Entry>) {
    this.#entries = entries;
  }

  static none(): RecipeFiles {
    return new RecipeFiles(new Map());
  }

  /** Stores an upload at `path`, which must exist while the files are used. Throws BAD_REQUEST and TOO_LARGE */
  static async receive(archive: AsyncIterable<Uint8Array>, path: string, signal: AbortSignal): Promise<RecipeFiles> {
    await store(archive, path, signal);
    const entries = new Map<string, Entry>();
    try {
      for await (const { header, offset } of readTar(createReadStream(path, { highWaterMark: CHUNK, signal }), "the uploaded files"))
        addEntry(entries, header, async function* () {
          if (header.size > 0) yield* createReadStream(path, { start: offset, end: offset + header.size - 1 }) as AsyncIterable<Buffer>;
        });
    } catch (error) {
      // translate: the archive reader's error code refers to images
      if (!(error instanceof ForkdError) || error.code !== "IMAGE_INVALID") throw error;
      throw new ForkdError("BAD_REQUEST", error.message, { cause: error });
    }
    return new RecipeFiles(entries);
  }

  /** A host folder that the caller may read; with `names`, only these entries */
  static async at(folder: string, names?: readonly string[]): Promise<RecipeFiles> {
    const entries = new Map<string, Entry>();
    await walk(folder, "", entries, names);
    return new RecipeFiles(entries);
  }

  /** undefined: not found */
  find(path: string): "file" | "folder" | undefined {
    return this.#resolve(path)?.entry.kind;
  }

  /** Names of the top-level folders */
  folders(): string[] {
    return [...this.#entries.keys()].filter((path) => !path.includes("/") && this.find(utf8(path)) === "folder").map(utf8);
  }

  mode(path: string): number {
    return this.#get(path).entry.mode;
  }

  size(path: string): number {
    const { entry } = this.#get(path);
    return entry.kind === "file" ? entry.size : 0;
  }

  async *read(path: string): AsyncGenerator<Buffer> {
    const { entry } = this.#get(path);
    if (entry.kind === "file") yield* entry.open();
  }

  /** Hash of names, modes, contents and links, without times and owners, which a copy does not keep */
  async hash(path: string): Promise<string> {
    const found = this.#get(path);
    const hash = createHash("sha256");
    if (found.entry.kind === "file") hash.update(await described(found.entry));
    else for (const { name, entry } of this.#below(found.path)) hash.update(`\0${name}\0${await described(entry)}`);
    return hash.digest("hex");
  }

  /** Contents of a folder as an archive with files owned by root */
  async *pack(path: string): AsyncGenerator<Buffer> {
    const found = this.#get(path);
    for (const { name, entry } of this.#below(found.path)) {
      if (entry.kind === "link") yield encodeHeader(rootHeader({ path: name, type: "symlink", mode: MODE_BITS, linkname: entry.target }));
      else if (entry.kind === "folder") yield encodeHeader(rootHeader({ path: name, type: "dir", mode: entry.mode }));
      else {
        yield encodeHeader(rootHeader({ path: name, type: "file", mode: entry.mode, size: entry.size }));
        yield* entry.open();
        yield paddingOf(entry.size);
      }
    }
    yield endOfTar();
  }

  /** All entries below a folder, sorted by name */
  #below(folder: string): { name: string; entry: Entry }[] {
    const prefix = folder === "" ? "" : `${folder}/`;
    return [...this.#entries]
      .filter(([path]) => path.startsWith(prefix))
      .map(([path, entry]) => ({ name: path.slice(prefix.length), entry }))
      .toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  #get(path: string): { path: string; entry: Exclude<Entry, { kind: "link" }> } {
    const found = this.#resolve(path);
    if (!found) throw new ForkdError("NOT_FOUND", `There is no ${path} among the files of the recipe.`);
    return found;
  }

  /** Follows links in the last path component; undefined if a link leaves the files */
  #resolve(given: string): { path: string; entry: Exclude<Entry, { kind: "link" }> } | undefined {
    let path = normal(latin1(given));
    for (let hops = 0; hops <= MAX_LINKS && path !== undefined; hops++) {
      if (path === "") return { path, entry: { kind: "folder", mode: FOLDER_MODE } };
      const entry = this.#entries.get(path);
      if (entry?.kind !== "link") return entry && { path, entry };
      path = posix.isAbsolute(entry.target) ? undefined : normal(posix.join(posix.dirname(path), entry.target));
    }
    return undefined;
  }
}

async function described(entry: Entry): Promise<string> {
  if (entry.kind === "link") return `link ${entry.target}\0`;
  if (entry.kind === "folder") return `folder ${entry.mode}\0`;
  const content = createHash("sha256");
  for await (const chunk of entry.open()) content.update(chunk);
  return `file ${entry.mode} ${content.digest("hex")}\0`;
}

function addEntry(entries: Map<string, Entry>, header: Header, open: () => AsyncIterable<Buffer>): void {
  const path = normal(header.path);
  if (path === undefined || posix.isAbsolute(header.path)) throw refused(header.path, "its path leads out of the archive");
  if (path === "") return;
  if (entries.size >= MAX_ENTRIES) throw new ForkdError("TOO_LARGE", `Cannot take the uploaded files: they are more than ${MAX_ENTRIES}.`);
  for (let above = posix.dirname(path); above !== "."; above = posix.dirname(above)) {
    const kind = entries.get(above)?.kind;
    if (kind !== undefined && kind !== "folder") throw refused(header.path, "it is below something that is no folder");
    if (kind === undefined) entries.set(above, { kind: "folder", mode: FOLDER_MODE });
  }
  const mode = header.mode & MODE_BITS;
  if (header.type === "file") entries.set(path, { kind: "file", mode, size: header.size, open });
  else if (header.type === "dir") entries.set(path, { kind: "folder", mode });
  else if (header.type === "symlink") entries.set(path, { kind: "link", target: header.linkname });
  else if (header.type === "hardlink") {
    const same = entries.get(normal(header.linkname) ?? "");
    if (same?.kind !== "file") throw refused(header.path, "it is a hard link to no file before it");
    entries.set(path, same);
  } else throw refused(header.path, "it is neither a file, a folder nor a link");
}

type Header = { path: string; type: string; mode: number; size: number; linkname: string };

async function walk(folder: string, below: string, entries: Map<string, Entry>, names?: readonly string[]): Promise<void> {
  for (const name of await readdir(join(folder, below))) {
    if (names?.includes(name) === false) continue;
    const at = below === "" ? name : `${below}/${name}`;
    const path = join(folder, at);
    const info = await lstat(path);
    const mode = info.mode & MODE_BITS;
    const open = (): AsyncIterable<Buffer> => createReadStream(path) as AsyncIterable<Buffer>;
    if (entries.size >= MAX_ENTRIES) throw new ForkdError("TOO_LARGE", `Cannot use ${folder}: it has more than ${MAX_ENTRIES} files.`);
    if (info.isSymbolicLink()) entries.set(latin1(at), { kind: "link", target: latin1(await readlink(path)) });
    else if (info.isFile()) entries.set(latin1(at), { kind: "file", mode, size: info.size, open });
    else if (info.isDirectory()) {
      entries.set(latin1(at), { kind: "folder", mode });
      await walk(folder, at, entries);
    }
  }
}

async function store(archive: AsyncIterable<Uint8Array>, path: string, signal: AbortSignal): Promise<void> {
  await using file = await open(path, "wx", 0o600);
  let bytes = 0;
  for await (const piece of archive) {
    signal.throwIfAborted();
    bytes += piece.length;
    if (bytes > MAX_UPLOAD_BYTES)
      throw new ForkdError("TOO_LARGE", `Cannot take the uploaded files: they are larger than ${MAX_UPLOAD_BYTES} bytes.`);
    await file.write(piece);
  }
}

/** Normalized path; undefined: it leaves the files */
function normal(path: string): string | undefined {
  const plain = posix.normalize(`./${path}`).replace(/\/$/, "");
  if (plain === "..") return undefined;
  return plain === "." ? "" : plain.startsWith("../") ? undefined : plain;
}

function refused(path: string, why: string): ForkdError {
  return new ForkdError("BAD_REQUEST", `Cannot take the uploaded file ${showPath(path)}: ${why}.`);
}

function latin1(text: string): string {
  return Buffer.from(text).toString("latin1");
}

function utf8(text: string): string {
  return Buffer.from(text, "latin1").toString();
}
