// The files of one sandbox.

import { FileError } from "./errors.ts";
import type { Controller } from "./controller.ts";
import type { FileWatch } from "./file-watch.ts";
import type {
  ChmodOptions,
  ChownOptions,
  CopyFileOptions,
  FileContent,
  FileOnceOptions,
  FileOptions,
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
import type { FileInfo, ListedFile, UnpackResult, WriteResult } from "./schema.gen.ts";

/**
 * Files inside a sandbox. Paths are absolute; a name that is not UTF-8 is given as `base64:` and the bytes of its path, as {@link list}
 * shows it. With `user`, rights and ownership are that user's.
 *
 * @throws FileError when the guest refuses; its `errno` says why
 */
export class SandboxFiles {
  private readonly controller: Controller;
  private readonly id: string;

  constructor(controller: Controller, id: string) {
    this.controller = controller;
    this.id = id;
  }

  /** A file's bytes, or a part of them. */
  async read(path: string, opts: ReadFileOptions = {}): Promise<Uint8Array> {
    return await this.controller.readFile(this.id, path, opts);
  }

  /** A file as UTF-8 text. */
  async readText(path: string, opts: ReadFileOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, opts));
  }

  /** A file's bytes as they come. */
  readStream(path: string, opts: ReadFileOptions = {}): AsyncIterable<Uint8Array> {
    return this.controller.readFileStream(this.id, path, opts);
  }

  /** Writes text, bytes or a stream; the file appears when it is complete. With `offset` it writes into a file that keeps the rest. */
  async write(path: string, content: FileContent, opts: WriteFileOptions = {}): Promise<WriteResult> {
    return await this.controller.writeFile(this.id, path, content, opts);
  }

  /** Adds to the end of a file, which is made when it is missing. */
  async append(path: string, content: FileContent, opts: Omit<WriteFileOptions, "append" | "offset"> = {}): Promise<WriteResult> {
    return await this.write(path, content, { ...opts, append: true });
  }

  /** Kind, size, mode, owner and link target; of a link itself, unless `follow`. */
  async stat(path: string, opts: StatFileOptions = {}): Promise<FileInfo> {
    return await this.controller.statFile(this.id, path, opts);
  }

  /** Whether there is anything at this path, be it a link that leads nowhere. */
  async exists(path: string, opts: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, opts);
      return true;
    } catch (error) {
      if (error instanceof FileError && (error.errno === "ENOENT" || error.errno === "ENOTDIR")) return false;
      throw error;
    }
  }

  /** What a directory holds, in the order of the paths; with `depth` also what its directories hold. */
  async list(path: string, opts: ListFilesOptions = {}): Promise<Page<ListedFile>> {
    return await this.controller.listFiles(this.id, path, opts);
  }

  /** Makes a directory; with `parents` also those above it, and one that is there is as good. */
  async mkdir(path: string, opts: MakeDirectoryOptions = {}): Promise<void> {
    await this.controller.makeDirectory(this.id, path, opts);
  }

  /** Moves to exactly this path. */
  async move(from: string, to: string, opts: MoveFileOptions = {}): Promise<void> {
    await this.controller.moveFile(this.id, from, to, opts);
  }

  /** Copies to exactly this path, which appears when it is complete; directories with `recursive`. */
  async copy(from: string, to: string, opts: CopyFileOptions = {}): Promise<void> {
    await this.controller.copyFile(this.id, from, to, opts);
  }

  /** Removes a file, a link or an empty directory; with `recursive` a directory with all it holds. */
  async remove(path: string, opts: RemoveFileOptions = {}): Promise<void> {
    await this.controller.removeFile(this.id, path, opts);
  }

  /** Sets the mode, octal such as "644". */
  async chmod(path: string, mode: string, opts: ChmodOptions = {}): Promise<void> {
    await this.controller.chmodFile(this.id, path, mode, opts);
  }

  /** Sets owner and group, by name or number. */
  async chown(path: string, opts: ChownOptions): Promise<void> {
    await this.controller.chownFile(this.id, path, opts);
  }

  /** Makes a symbolic link at `path` that points to `target`. */
  async symlink(target: string, path: string, opts: FileOnceOptions = {}): Promise<void> {
    await this.controller.makeSymlink(this.id, target, path, opts);
  }

  /**
   * Tells what changes. Resolves when nothing is missed any more; `close` ends it.
   *
   * @example
   * ```ts
   * await using watch = await sandbox.files.watch("/srv", { recursive: true });
   * for await (const { type, path } of watch) console.log(type, path);
   * ```
   */
  async watch(path: string, opts: WatchFilesOptions = {}): Promise<FileWatch> {
    return await this.controller.watchFiles(this.id, path, opts);
  }

  /** What a directory holds, or one file, as a tar archive that comes bit by bit. */
  downloadTar(path: string, opts: ReadTarOptions = {}): AsyncIterable<Uint8Array> {
    return this.controller.readTar(this.id, path, opts);
  }

  /** Extracts a tar archive into a directory, which is made when it is missing. */
  async uploadTar(path: string, archive: FileContent, opts: FileOptions = {}): Promise<UnpackResult> {
    return await this.controller.writeTar(this.id, path, archive, opts);
  }
}
