// Calls about the files of a sandbox. Paths are absolute; `base64:` and the bytes where they are not UTF-8.

import { FileWatch } from "./file-watch.ts";
import { GuestCalls } from "./guest-calls.ts";
import { concat } from "./streams.ts";
import { path, split, toWire } from "./wire.ts";
import type {
  ChmodOptions,
  ChownOptions,
  CopyFileOptions,
  FileContent,
  FileOptions,
  FileOnceOptions,
  ListFilesOptions,
  MakeDirectoryOptions,
  MoveFileOptions,
  ReadFileOptions,
  ReadTarOptions,
  RemoveFileOptions,
  StatFileOptions,
  WatchFilesOptions,
  WriteFileOptions,
} from "./file-options.ts";
import type { Page } from "./options.ts";
import type * as wire from "./schema.gen.ts";

/** The most the daemon gives at once */
const LARGEST_PAGE = 10_000;

export class FileCalls extends GuestCalls {
  /** Reads a file of the guest whole, or a part of it. */
  async readFile(id: string, filePath: string, opts: ReadFileOptions = {}): Promise<Uint8Array> {
    return await concat(this.readFileStream(id, filePath, opts));
  }

  /** Reads a file of the guest bit by bit; `timeoutMs` is the longest silence. The request is sent with the first step of the iteration. */
  readFileStream(id: string, filePath: string, opts: ReadFileOptions = {}): AsyncIterable<Uint8Array> {
    const { signal, timeoutMs, ...query } = opts;
    return this.client.stream("GET", path`/v1/sandboxes/${id}/files`, { signal, timeoutMs, query: { path: filePath, ...query } });
  }

  /**
   * Writes a file of the guest, which appears when it is complete. A stream is sent as it comes (browsers can send only text and bytes).
   *
   * @example
   * ```ts
   * await controller.writeFile(id, "/srv/data.csv", createReadStream("data.csv"), { parents: true });
   * ```
   */
  async writeFile(id: string, filePath: string, content: FileContent, opts: WriteFileOptions = {}): Promise<wire.WriteResult> {
    const { signal, timeoutMs, ...query } = opts;
    return await this.client.json("PUT", path`/v1/sandboxes/${id}/files`, {
      signal,
      timeoutMs,
      query: { path: filePath, ...query },
      content,
      canRepeat: opts.append !== true,
    });
  }

  /** Kind, size, mode, owner and link target of a file of the guest. */
  async statFile(id: string, filePath: string, opts: StatFileOptions = {}): Promise<wire.FileInfo> {
    const { signal, timeoutMs, ...query } = opts;
    return await this.client.json("GET", path`/v1/sandboxes/${id}/files/stat`, { signal, timeoutMs, query: { path: filePath, ...query } });
  }

  /** What a directory of the guest holds, in the order of the paths. Pages only when `limit` or `cursor` is given. */
  async listFiles(id: string, directory: string, opts: ListFilesOptions = {}): Promise<Page<wire.ListedFile>> {
    const { signal, timeoutMs, ...rest } = opts;
    const route = path`/v1/sandboxes/${id}/files/list`;
    const page = (query: typeof rest): Promise<Page<wire.ListedFile>> =>
      this.client.page(route, { signal, timeoutMs, query: { path: directory, ...toWire(query) } });
    if (rest.limit !== undefined || rest.cursor !== undefined) return await page(rest);
    const all: wire.ListedFile[] = [];
    for (let cursor: string | null | undefined; cursor !== null;) {
      const next = await page({ ...rest, limit: LARGEST_PAGE, cursor });
      for (const file of next) all.push(file);
      cursor = next.nextCursor;
    }
    return Object.defineProperty(all, "nextCursor", { value: null }) as Page<wire.ListedFile>;
  }

  /** Makes a directory in the guest; with `parents` also those above it, and one that is there is as good. */
  async makeDirectory(id: string, directory: string, opts: MakeDirectoryOptions = {}): Promise<void> {
    const { fields, call } = split(opts);
    const json: wire.MakeDirectory = { path: directory, ...fields };
    await this.client.empty("POST", path`/v1/sandboxes/${id}/files/mkdir`, { ...call, json });
  }

  /** Gives a file or directory of the guest exactly this other path. */
  async moveFile(id: string, from: string, to: string, opts: MoveFileOptions = {}): Promise<void> {
    const { fields, call } = split(opts);
    const json: wire.MoveFile = { from, to, ...fields };
    await this.client.empty("POST", path`/v1/sandboxes/${id}/files/move`, { ...call, json });
  }

  /** Copies inside the guest to exactly this path, which appears when it is complete; directories with `recursive`. */
  async copyFile(id: string, from: string, to: string, opts: CopyFileOptions = {}): Promise<void> {
    const { fields, call } = split(opts);
    const json: wire.CopyFile = { from, to, ...fields };
    await this.client.empty("POST", path`/v1/sandboxes/${id}/files/copy`, { ...call, json });
  }

  /** Removes a file, a link or an empty directory of the guest; with `recursive` a directory with all it holds. */
  async removeFile(id: string, filePath: string, opts: RemoveFileOptions = {}): Promise<void> {
    const { signal, timeoutMs, ...query } = opts;
    await this.client.empty("DELETE", path`/v1/sandboxes/${id}/files`, { signal, timeoutMs, query: { path: filePath, ...query } });
  }

  /** Sets the mode of a file of the guest, or of a tree. */
  async chmodFile(id: string, filePath: string, mode: string, opts: ChmodOptions = {}): Promise<void> {
    const { fields, call } = split(opts);
    const json: wire.ChmodFile = { path: filePath, mode, ...fields };
    await this.client.empty("POST", path`/v1/sandboxes/${id}/files/chmod`, { ...call, json, canRepeat: true });
  }

  /** Sets owner and group of a file of the guest, or of a tree: names or numbers. */
  async chownFile(id: string, filePath: string, opts: ChownOptions): Promise<void> {
    const { fields, call } = split(opts);
    const json: wire.ChownFile = { path: filePath, ...fields };
    await this.client.empty("POST", path`/v1/sandboxes/${id}/files/chown`, { ...call, json, canRepeat: true });
  }

  /** Makes a symbolic link in the guest. */
  async makeSymlink(id: string, target: string, link: string, opts: FileOnceOptions = {}): Promise<void> {
    const { fields, call } = split(opts);
    const json: wire.MakeSymlink = { target, path: link, ...fields };
    await this.client.empty("POST", path`/v1/sandboxes/${id}/files/symlink`, { ...call, json });
  }

  /** Tells what changes in a directory of the guest. Resolves when nothing is missed any more. */
  async watchFiles(id: string, directory: string, opts: WatchFilesOptions = {}): Promise<FileWatch> {
    const { signal, ...query } = opts;
    return await FileWatch.open(this.client, path`/v1/sandboxes/${id}/files/watch`, { path: directory, ...toWire(query) }, signal);
  }

  /** What a directory of the guest holds, or one file, as a tar archive that comes bit by bit. */
  readTar(id: string, filePath: string, opts: ReadTarOptions = {}): AsyncIterable<Uint8Array> {
    const { signal, timeoutMs, ...query } = opts;
    return this.client.stream("GET", path`/v1/sandboxes/${id}/files/tar`, { signal, timeoutMs, query: { path: filePath, ...query } });
  }

  /** Extracts a tar archive into a directory of the guest, which is made when it is missing. */
  async writeTar(id: string, directory: string, archive: FileContent, opts: FileOptions = {}): Promise<wire.UnpackResult> {
    const { signal, timeoutMs, user } = opts;
    return await this.client.json("PUT", path`/v1/sandboxes/${id}/files/tar`, {
      signal,
      timeoutMs,
      query: { path: directory, user },
      content: archive,
    });
  }
}
