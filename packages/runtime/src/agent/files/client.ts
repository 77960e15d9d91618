// File operations in one guest.

import { getAttributes, setAttributes, type Attributes } from "./attributes.ts";
import { Reader, Writer } from "../../util/codec.ts";
import type { AgentConnection } from "../wire/connection.ts";
import { deed, fileCall, fileError, type Deed } from "./error.ts";
import { readFile, readFileChunks, statFile, writeFile } from "./content.ts";
import type { FileContent, FileInfo, FileOptions, ReadOptions, WriteOptions, Written } from "./content.ts";
import { GrowingBuffer } from "../../util/growing-buffer.ts";
import { pathBytes } from "./path.ts";
import { listFiles, type FilePage, type ListOptions } from "./listing.ts";
import { T } from "../wire/protocol.ts";
import { AgentError } from "../wire/stream.ts";
import { runTool, toolOutput } from "./tool.ts";
import { watchFiles, type FileChange, type WatchOptions } from "./watch.ts";

const CALL_TIMEOUT_MS = 30_000;
const FLAG = 1;
const COUNTS_BYTES = 16;
const USAGE_BYTES = 32;

export type CopyOptions = FileOptions & { overwrite?: boolean | undefined };
export type TreeOptions = FileOptions & { recursive?: boolean | undefined };

/** Paths are absolute; `base64:` and the bytes where they are not UTF-8. Links are followed as a program in the guest would */
export class GuestFiles {
  readonly #agent: () => AgentConnection;

  /** `agent` throws when the guest has ended */
  constructor(agent: () => AgentConnection) {
    this.#agent = agent;
  }

  async read(path: string, opts?: ReadOptions & { maxBytes?: number }): Promise<Buffer> {
    return readFile(this.#agent(), path, opts);
  }

  readChunks(path: string, opts?: ReadOptions): AsyncGenerator<Buffer> {
    return readFileChunks(this.#agent(), path, opts);
  }

  async write(path: string, content: FileContent, opts?: WriteOptions): Promise<number> {
    return (await this.writeOwned(path, content, opts)).bytes;
  }

  async writeOwned(path: string, content: FileContent, opts?: WriteOptions): Promise<Written> {
    return writeFile(this.#agent(), path, content, opts);
  }

  async stat(path: string, opts: FileOptions & { follow?: boolean } = {}): Promise<FileInfo> {
    return statFile(this.#agent(), path, { ...opts, timeoutMs: CALL_TIMEOUT_MS });
  }

  async list(path: string, opts: ListOptions): Promise<FilePage> {
    return listFiles(this.#agent(), path, opts);
  }

  /** With `parents`, missing parent folders are made, and an existing folder is no error */
  async makeDirectory(path: string, opts: FileOptions & { mode?: number | undefined; parents?: boolean | undefined } = {}): Promise<void> {
    const payload = new Writer()
      .bytes(pathBytes(path))
      .u32(opts.mode ?? 0o755)
      .u8(opts.parents ? FLAG : 0);
    await this.#quick(deed("make the directory", path), T.MKDIR, payload, opts);
  }

  /** Moves to exactly this path. Overwriting replaces a file, a link or an empty directory */
  async move(from: string, to: string, opts: CopyOptions = {}): Promise<void> {
    const what: Deed = `${deed("move", from)} to ${JSON.stringify(to)}`;
    const payload = new Writer()
      .bytes(pathBytes(from))
      .bytes(pathBytes(to))
      .u8(opts.overwrite ? FLAG : 0)
      .str(opts.user ?? "")
      .done();
    try {
      await this.#call(T.MOVE, payload, opts);
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      if (error.errno !== "EXDEV") throw fileError(what, error);
      // to another file system, or out of a folder of the image
      await this.#tool(what, ["move", pathBytes(from), pathBytes(to), ...(opts.overwrite ? ["--overwrite"] : [])], opts);
    }
  }

  /** Copies to exactly this path, which appears when it is complete. With `recursive`, folders too, and links as links */
  async copy(from: string, to: string, opts: CopyOptions & TreeOptions = {}): Promise<void> {
    const flags = [...(opts.recursive ? ["--recursive"] : []), ...(opts.overwrite ? ["--overwrite"] : [])];
    await this.#tool(`${deed("copy", from)} to ${JSON.stringify(to)}`, ["copy", pathBytes(from), pathBytes(to), ...flags], opts);
  }

  /** Without `recursive`: a file, a link or an empty directory */
  async remove(path: string, opts: TreeOptions = {}): Promise<void> {
    const what = deed("remove", path);
    if (opts.recursive) await this.#tool(what, ["remove", pathBytes(path)], opts);
    else await this.#quick(what, T.REMOVE, new Writer().bytes(pathBytes(path)), opts);
  }

  async chmod(path: string, mode: number, opts: TreeOptions = {}): Promise<void> {
    const what = deed("change the mode of", path);
    if (opts.recursive) await this.#tool(what, ["chmod", pathBytes(path), mode.toString(8)], opts);
    else await this.#quick(what, T.CHMOD, new Writer().bytes(pathBytes(path)).u32(mode), opts);
  }

  /** Names or numbers; an omitted one is unchanged */
  async chown(path: string, to: { owner?: string | undefined; group?: string | undefined }, opts: TreeOptions = {}): Promise<void> {
    const what = deed("change the owner of", path);
    const { owner = "", group = "" } = to;
    if (opts.recursive) await this.#tool(what, ["chown", pathBytes(path), owner, group], opts);
    else await this.#quick(what, T.CHOWN, new Writer().bytes(pathBytes(path)).str(owner).str(group), opts);
  }

  async symlink(target: string, path: string, opts: FileOptions = {}): Promise<void> {
    await this.#quick(deed("make the link", path), T.SYMLINK, new Writer().bytes(pathBytes(target)).bytes(pathBytes(path)), opts);
  }

  /** Extended attributes of each path, in the same order: those with the prefix, keyed by the rest of their names */
  async attributes(paths: readonly string[], prefix: string, opts?: FileOptions): Promise<Attributes[]> {
    return getAttributes(this.#agent(), paths, prefix, opts);
  }

  /** Replaces all attributes with the prefix */
  async setAttributes(path: string, given: { prefix: string; attributes: Attributes }, opts?: FileOptions): Promise<void> {
    await setAttributes(this.#agent(), path, given, opts);
  }

  watch(path: string, opts: WatchOptions): AsyncGenerator<FileChange> {
    return watchFiles(this.#agent(), path, opts);
  }

  /** A tar archive of a directory's content, or of one file; with `plain` without devices and pipes */
  pack(path: string, opts: FileOptions & { plain?: boolean | undefined } = {}): AsyncGenerator<Buffer> {
    const { plain, ...rest } = opts;
    const argv = ["pack", pathBytes(path), ...(plain ? ["--plain"] : [])];
    return toolOutput(this.#agent(), { what: deed("pack", path), argv, ...rest });
  }

  /** Extracts a tar archive into a directory; a new directory appears when it is complete */
  async unpack(path: string, archive: AsyncIterable<Uint8Array>, opts: FileOptions = {}): Promise<{ entries: number; bytes: number }> {
    const output = new GrowingBuffer();
    const call = { what: deed("unpack into", path), argv: ["unpack", pathBytes(path)], ...opts };
    await runTool(this.#agent(), call, { input: archive, onOutput: (bytes) => void output.add(bytes, COUNTS_BYTES) });
    const counts = new Reader(output.bytes());
    return { entries: Number(counts.u64()), bytes: Number(counts.u64()) };
  }

  /** Bytes and entries of a tree, and its file system. A file with several names counts once */
  async usage(path: string, opts: FileOptions = {}): Promise<{ bytes: number; entries: number; totalBytes: number; usedBytes: number }> {
    const output = new GrowingBuffer();
    const call = { what: deed("measure", path), argv: ["usage", pathBytes(path)], ...opts };
    await runTool(this.#agent(), call, { onOutput: (bytes) => void output.add(bytes, USAGE_BYTES) });
    const counts = new Reader(output.bytes());
    const next = (): number => Number(counts.u64());
    return { bytes: next(), entries: next(), totalBytes: next(), usedBytes: next() };
  }

  async #quick(what: Deed, type: number, payload: Writer, opts: FileOptions): Promise<void> {
    await fileCall(what, this.#call(type, payload.str(opts.user ?? "").done(), opts));
  }

  async #call(type: number, payload: Buffer, { signal }: FileOptions): Promise<void> {
    await this.#agent().call(type, payload, { timeoutMs: CALL_TIMEOUT_MS, signal });
  }

  async #tool(what: Deed, argv: readonly (string | Uint8Array)[], { user, signal }: FileOptions): Promise<void> {
    await runTool(this.#agent(), { what, argv, user, signal });
  }
}
