// What is done with the files of a running sandbox.

import type * as api from "../api/files.ts";
import { ForkdError } from "../errors.ts";
import type { FileInfo } from "../guest/files.ts";
import type { ListedFile } from "../guest/listing.ts";
import type { FileChange } from "../guest/file-watch.ts";
import type { GuestFiles } from "../guest/guest-files.ts";
import type { Caller } from "./caller.ts";
import type { Registry } from "./registry.ts";
import type { Sandboxes } from "./sandboxes.ts";

/** `inPlace`: the file itself is written anew, as most programs do it, and not replaced when it is whole */
export type WriteFile = api.WriteFileQuery & { inPlace?: boolean };

/** Extended attributes whose names begin with the prefix */
export type GetAttributes = { paths: string[]; prefix: string };
export type SetAttributes = { path: string; prefix: string; attributes: Record<string, string> };

export class Files {
  readonly #sandboxes: Sandboxes;
  readonly #registry: Registry;

  constructor(parts: { sandboxes: Sandboxes; registry: Registry }) {
    this.#sandboxes = parts.sandboxes;
    this.#registry = parts.registry;
  }

  /** Rejects before the first byte when the file cannot be read */
  async read(id: string, query: api.ReadFileQuery, caller: Caller): Promise<AsyncIterable<Buffer>> {
    const { path, ...range } = query;
    return this.#stream(id, caller, (files, signal) => files.readChunks(path, { ...range, signal }));
  }

  async write(id: string, query: WriteFile, content: AsyncIterable<Uint8Array>, caller: Caller): Promise<api.WriteResult> {
    const { path, mode, parents = false, ...how } = query;
    const opts = { ...how, parents, mode: modeOf(mode), signal: caller.signal };
    return { bytes: await this.#use(id, async (files) => files.write(path, content, opts)) };
  }

  async stat(id: string, query: api.StatFileQuery, caller: Caller): Promise<api.FileInfo> {
    const { path, follow = false, user } = query;
    return infoOf(await this.#use(id, async (files) => files.stat(path, { follow, user, signal: caller.signal })));
  }

  async list(id: string, query: api.ListFilesQuery, caller: Caller): Promise<{ items: api.ListedFile[]; nextCursor: string | null }> {
    const { path, ...page } = query;
    const { files, cursor } = await this.#use(id, async (guest) => guest.list(path, { ...page, signal: caller.signal }));
    return { items: files.map(listedOf), nextCursor: cursor };
  }

  async makeDirectory(id: string, request: api.MakeDirectory, caller: Caller): Promise<void> {
    const { path, mode, parents, user } = request;
    await this.#use(id, async (files) => files.makeDirectory(path, { mode: modeOf(mode), parents, user, signal: caller.signal }));
  }

  async move(id: string, request: api.MoveFile, caller: Caller): Promise<void> {
    const { from, to, ...how } = request;
    await this.#use(id, async (files) => files.move(from, to, { ...how, signal: caller.signal }));
  }

  async copy(id: string, request: api.CopyFile, caller: Caller): Promise<void> {
    const { from, to, ...how } = request;
    await this.#use(id, async (files) => files.copy(from, to, { ...how, signal: caller.signal }));
  }

  async remove(id: string, query: api.RemoveFileQuery, caller: Caller): Promise<void> {
    const { path, ...how } = query;
    await this.#use(id, async (files) => files.remove(path, { ...how, signal: caller.signal }));
  }

  async chmod(id: string, request: api.ChmodFile, caller: Caller): Promise<void> {
    const { path, mode, ...how } = request;
    await this.#use(id, async (files) => files.chmod(path, Number.parseInt(mode, 8), { ...how, signal: caller.signal }));
  }

  async chown(id: string, request: api.ChownFile, caller: Caller): Promise<void> {
    const { path, owner, group, ...how } = request;
    await this.#use(id, async (files) => files.chown(path, { owner, group }, { ...how, signal: caller.signal }));
  }

  async symlink(id: string, request: api.MakeSymlink, caller: Caller): Promise<void> {
    const { target, path, user } = request;
    await this.#use(id, async (files) => files.symlink(target, path, { user, signal: caller.signal }));
  }

  /** Of each path, in the same order, by what follows the prefix */
  async attributes(id: string, { paths, prefix }: GetAttributes, caller: Caller): Promise<Record<string, string>[]> {
    const all = await this.#use(id, async (files) => files.attributes(paths, prefix, { signal: caller.signal }));
    return all.map((attributes) => Object.fromEntries(attributes));
  }

  /** In place of all that begin with the prefix */
  async setAttributes(id: string, request: SetAttributes, caller: Caller): Promise<void> {
    const { path, prefix, attributes } = request;
    const given = { prefix, attributes: new Map(Object.entries(attributes)) };
    await this.#use(id, async (files) => files.setAttributes(path, given, { signal: caller.signal }));
  }

  /** Resolves when nothing is missed any more */
  async watch(id: string, query: api.WatchFilesQuery, caller: Caller): Promise<AsyncIterable<api.FileEvent>> {
    const { path, recursive = false, debounce_ms: debounceMs, user } = query;
    return this.#stream(id, caller, (files, signal) => eventsOf(files.watch(path, { recursive, debounceMs, user, signal })));
  }

  /** Rejects before the first byte when there is nothing to pack */
  async pack(id: string, query: api.ReadTarQuery, caller: Caller): Promise<AsyncIterable<Buffer>> {
    const { path, ...how } = query;
    return this.#stream(id, caller, (files, signal) => files.pack(path, { ...how, signal }));
  }

  async unpack(id: string, query: api.WriteTarQuery, archive: AsyncIterable<Uint8Array>, caller: Caller): Promise<api.UnpackResult> {
    const { path, user } = query;
    return this.#use(id, async (files) => files.unpack(path, archive, { user, signal: caller.signal }));
  }

  async #use<V>(id: string, work: (files: GuestFiles) => Promise<V>): Promise<V> {
    return this.#sandboxes.use(id, async (sandbox) => work(sandbox.files));
  }

  /** The first piece is waited for, so that what cannot be begun is an error and not a broken answer */
  async #stream<V>(
    id: string,
    caller: Caller,
    open: (files: GuestFiles, signal: AbortSignal) => AsyncGenerator<V>,
  ): Promise<AsyncIterableIterator<V>> {
    const { reading, first } = await this.#use(id, async (files) => {
      const opened = open(files, caller.signal);
      return { reading: opened, first: await opened.next() };
    });
    return this.#rest(id, reading, first, caller);
  }

  /** No generator: one that nobody has begun to read runs no `finally`, and the agent's stream would stay open */
  #rest<V>(id: string, reading: AsyncGenerator<V>, first: IteratorResult<V>, caller: Caller): AsyncIterableIterator<V> {
    const entry = this.#registry.find(id);
    if (entry) entry.uses++;
    let isReleased = false;
    const release = async (): Promise<void> => {
      if (isReleased) return;
      isReleased = true;
      if (entry) {
        entry.uses--;
        entry.lastActive = Date.now();
      }
      await reading.return(undefined);
    };
    let ahead: IteratorResult<V> | undefined = first;
    return {
      [Symbol.asyncIterator]() {
        return this;
      },
      async next() {
        try {
          caller.signal.throwIfAborted();
          const piece = ahead ?? (await reading.next());
          ahead = undefined;
          if (piece.done) await release();
          return piece;
        } catch (error) {
          await release();
          throw error;
        }
      },
      async return() {
        await release();
        return { done: true, value: undefined };
      },
    };
  }
}

/** A watch that fails after it has begun says so in its last event */
async function* eventsOf(changes: AsyncGenerator<FileChange>): AsyncGenerator<api.FileEvent> {
  let hasBegun = false;
  try {
    for await (const change of changes) {
      hasBegun = true;
      yield change;
    }
  } catch (error) {
    if (!hasBegun || !(error instanceof ForkdError) || error.code === "CANCELLED") throw error;
    yield { type: "error", problem: { error: error.message, code: error.code } };
  }
}

function modeOf(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number.parseInt(text, 8);
}

function infoOf(info: FileInfo): api.FileInfo {
  const { kind, mode, uid, gid, owner, group, size, mtimeMs, target } = info;
  return { kind, mode: (mode & 0o7777).toString(8).padStart(4, "0"), uid, gid, owner, group, size, mtime_ms: mtimeMs, target };
}

function listedOf(file: ListedFile): api.ListedFile {
  const { path, name, nameBase64, errno } = file;
  return {
    path,
    name,
    ...(nameBase64 === undefined ? {} : { name_base64: nameBase64 }),
    ...infoOf(file),
    ...(errno === undefined ? {} : { errno }),
  };
}
