// The files of one sandbox.

import { FileError } from "./errors.ts";
import type { Controller } from "./controller.ts";
import type { FileWatch } from "./file-watch.ts";
import type { FileContent, Page } from "./call-options.ts";
import type {
  ChmodOptions,
  ChownOptions,
  CopyFileOptions,
  FileOnceOptions,
  FileOptions,
  ListFilesOptions,
  MakeDirectoryOptions,
  MoveFileOptions,
  ReadFileOptions,
  ReadTarOptions,
  RemoveFileOptions,
  StatFileOptions,
  WriteFileOptions,
} from "./options.gen.ts";
import type { WatchFilesOptions } from "./options.ts";
import type { DiskUsage, FileInfo, ListedFile, UnpackResult, WriteResult } from "./schema.gen.ts";

/**
 * Files inside a sandbox. Paths are absolute; a path that is not UTF-8 is written as `base64:` and its bytes, as in the answers of
 * {@link list}. `user` is the guest user whose rights count and who owns new files; without it, root.
 *
 * @throws FileError when the guest's system refuses the operation; `errno` has the reason
 */
export class SandboxFiles {
  private readonly controller: Controller;
  private readonly id: string;

  constructor(controller: Controller, id: string) {
    this.controller = controller;
    this.id = id;
  }

  /** Reads a file, or a part of it. */
  async read(path: string, opts: ReadFileOptions = {}): Promise<Uint8Array> {
    return await this.controller.readFile(this.id, path, opts);
  }

  /** Reads a file as UTF-8 text. */
  async readText(path: string, opts: ReadFileOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, opts));
  }

  /** Reads a file in pieces. */
  readStream(path: string, opts: ReadFileOptions = {}): AsyncIterable<Uint8Array> {
    return this.controller.readFileStream(this.id, path, opts);
  }

  /** Writes text, bytes or a stream. The file appears when it is complete. With `offset` it writes there and keeps the rest of the file. */
  async write(path: string, content: FileContent, opts: WriteFileOptions = {}): Promise<WriteResult> {
    return await this.controller.writeFile(this.id, path, content, opts);
  }

  /** Appends to a file, which is created when it is missing. */
  async append(path: string, content: FileContent, opts: Omit<WriteFileOptions, "append" | "offset"> = {}): Promise<WriteResult> {
    return await this.write(path, content, { ...opts, append: true });
  }

  /** Kind, size, mode, owner and link target. With `follow`, those of a link's target. */
  async stat(path: string, opts: StatFileOptions = {}): Promise<FileInfo> {
    return await this.controller.statFile(this.id, path, opts);
  }

  /** Disk space of a file or tree, as `du` and `df` report it: its own bytes, and size and use of its file system. */
  async usage(path: string = "/", opts: FileOptions = {}): Promise<DiskUsage> {
    return await this.controller.diskUsage(this.id, path, opts);
  }

  /** Whether the path exists; true for a dangling link. */
  async exists(path: string, opts: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, opts);
      return true;
    } catch (error) {
      if (error instanceof FileError && (error.errno === "ENOENT" || error.errno === "ENOTDIR")) return false;
      throw error;
    }
  }

  /** Lists the entries of a directory in the order of their paths; with `depth` also those of its subdirectories. */
  async list(path: string, opts: ListFilesOptions = {}): Promise<Page<ListedFile>> {
    return await this.controller.listFiles(this.id, path, opts);
  }

  /** Creates a directory; with `parents` also its missing parents, and an existing directory is no error. */
  async mkdir(path: string, opts: MakeDirectoryOptions = {}): Promise<void> {
    await this.controller.makeDirectory(this.id, path, opts);
  }

  /** Moves a file or directory to exactly this path. */
  async move(from: string, to: string, opts: MoveFileOptions = {}): Promise<void> {
    await this.controller.moveFile(this.id, from, to, opts);
  }

  /** Copies to exactly this path; directories need `recursive`. The copy appears when it is complete. */
  async copy(from: string, to: string, opts: CopyFileOptions = {}): Promise<void> {
    await this.controller.copyFile(this.id, from, to, opts);
  }

  /** Removes a file, a link or an empty directory; with `recursive` a directory with its contents. */
  async remove(path: string, opts: RemoveFileOptions = {}): Promise<void> {
    await this.controller.removeFile(this.id, path, opts);
  }

  /** Sets the mode, in octal, such as "644". */
  async chmod(path: string, mode: string, opts: ChmodOptions = {}): Promise<void> {
    await this.controller.chmodFile(this.id, path, mode, opts);
  }

  /** Sets owner and group, each by name or number. */
  async chown(path: string, opts: ChownOptions): Promise<void> {
    await this.controller.chownFile(this.id, path, opts);
  }

  /** Creates a symbolic link at `path` that points to `target`. */
  async symlink(target: string, path: string, opts: FileOnceOptions = {}): Promise<void> {
    await this.controller.makeSymlink(this.id, target, path, opts);
  }

  /**
   * Watches a directory. Resolves when the guest reports every later change; `close` ends the watch.
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

  /** A directory or one file, as a tar archive in pieces. */
  downloadTar(path: string, opts: ReadTarOptions = {}): AsyncIterable<Uint8Array> {
    return this.controller.readTar(this.id, path, opts);
  }

  /** Extracts a tar archive into a directory, which is created when it is missing. */
  async uploadTar(path: string, archive: FileContent, opts: FileOptions = {}): Promise<UnpackResult> {
    return await this.controller.writeTar(this.id, path, archive, opts);
  }
}
