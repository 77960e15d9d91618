// The files of one sandbox.

import type { Controller } from "./controller.ts";
import type { CallOptions, FileContent, ReadFileOptions, WriteFileOptions } from "./options.ts";
import type { FileInfo, WriteResult } from "./schema.gen.ts";

/** Files inside a sandbox. Paths are absolute. */
export class SandboxFiles {
  private readonly controller: Controller;
  private readonly id: string;

  constructor(controller: Controller, id: string) {
    this.controller = controller;
    this.id = id;
  }

  /**
   * A file's bytes.
   * @throws InvalidRequestError when it cannot be read
   */
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

  /** Writes text, bytes or a stream; the file appears when it is complete. */
  async write(path: string, content: FileContent, opts: WriteFileOptions = {}): Promise<WriteResult> {
    return await this.controller.writeFile(this.id, path, content, opts);
  }

  /** Kind, size, mode and owner. */
  async stat(path: string, opts: CallOptions = {}): Promise<FileInfo> {
    return await this.controller.statFile(this.id, path, opts);
  }
}
