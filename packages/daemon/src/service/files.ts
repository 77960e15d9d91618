// File operations on a running sandbox.

import type * as api from "../api/files.ts";
import { ForkdError } from "@forkd/runtime/errors";
import type { FileInfo, Written } from "@forkd/runtime/agent/files/content";
import type { ListedFile } from "@forkd/runtime/agent/files/listing";
import type { FileChange, Flush } from "@forkd/runtime/agent/files/watch";
import type { GuestFiles } from "@forkd/runtime/agent/files/client";
import type { Caller } from "./caller.ts";
import type { Lease } from "./lease.ts";
import type { Sandboxes } from "./sandboxes.ts";

/** `inPlace`: overwrite the file instead of replacing it atomically; `owner`: owner of a new file */
export type WriteFile = api.WriteFileQuery & { inPlace?: boolean; owner?: { uid: number; gid: number } };

/** Reads extended attributes whose names begin with the prefix */
export type GetAttributes = { paths: string[]; prefix: string };
export type SetAttributes = { path: string; prefix: string; attributes: Record<string, string> };

export class Files {
  readonly #sandboxes: Sandboxes;

  constructor(sandboxes: Sandboxes) {
    this.#sandboxes = sandboxes;
  }

  /** Rejects before the first byte if the file cannot be read */
  async read(id: string, query: api.ReadFileQuery, caller: Caller): Promise<AsyncIterable<Buffer>> {
    const { path, ...range } = query;
    return this.#stream(id, caller, (files, signal) => files.readChunks(path, { ...range, signal }));
  }

  async write(id: string, query: WriteFile, content: AsyncIterable<Uint8Array>, caller: Caller): Promise<Written> {
    const { path, mode, parents = false, ...how } = query;
    const opts = { ...how, parents, mode: modeOf(mode), signal: caller.signal };
    return this.#use(id, caller, async (files) => files.writeOwned(path, content, opts));
  }

  async stat(id: string, query: api.StatFileQuery, caller: Caller): Promise<api.FileInfo> {
    const { path, follow = false, user } = query;
    return infoOf(await this.#use(id, caller, async (files) => files.stat(path, { follow, user, signal: caller.signal })));
  }

  async usage(id: string, query: api.DiskUsageQuery, caller: Caller): Promise<api.DiskUsage> {
    const { path, user } = query;
    const found = await this.#use(id, caller, async (files) => files.usage(path, { user, signal: caller.signal }));
    return { bytes: found.bytes, entries: found.entries, total_bytes: found.totalBytes, used_bytes: found.usedBytes };
  }

  async list(id: string, query: api.ListFilesQuery, caller: Caller): Promise<{ items: api.ListedFile[]; nextCursor: string | null }> {
    const { path, ...page } = query;
    const { files, cursor } = await this.#use(id, caller, async (guest) => guest.list(path, { ...page, signal: caller.signal }));
    return { items: files.map(listedOf), nextCursor: cursor };
  }

  async makeDirectory(id: string, request: api.MakeDirectory, caller: Caller): Promise<void> {
    const { path, mode, parents, user } = request;
    await this.#use(id, caller, async (files) => files.makeDirectory(path, { mode: modeOf(mode), parents, user, signal: caller.signal }));
  }

  async move(id: string, request: api.MoveFile, caller: Caller): Promise<void> {
    const { from, to, ...how } = request;
    await this.#use(id, caller, async (files) => files.move(from, to, { ...how, signal: caller.signal }));
  }

  async copy(id: string, request: api.CopyFile, caller: Caller): Promise<void> {
    const { from, to, ...how } = request;
    await this.#use(id, caller, async (files) => files.copy(from, to, { ...how, signal: caller.signal }));
  }

  async remove(id: string, query: api.RemoveFileQuery, caller: Caller): Promise<void> {
    const { path, ...how } = query;
    await this.#use(id, caller, async (files) => files.remove(path, { ...how, signal: caller.signal }));
  }

  async chmod(id: string, request: api.ChmodFile, caller: Caller): Promise<void> {
    const { path, mode, ...how } = request;
    await this.#use(id, caller, async (files) => files.chmod(path, Number.parseInt(mode, 8), { ...how, signal: caller.signal }));
  }

  async chown(id: string, request: api.ChownFile, caller: Caller): Promise<void> {
    const { path, owner, group, ...how } = request;
    await this.#use(id, caller, async (files) => files.chown(path, { owner, group }, { ...how, signal: caller.signal }));
  }

  async symlink(id: string, request: api.MakeSymlink, caller: Caller): Promise<void> {
    const { target, path, user } = request;
    await this.#use(id, caller, async (files) => files.symlink(target, path, { user, signal: caller.signal }));
  }

  /** Attributes of each path, in the same order; keys lack the prefix */
  async attributes(id: string, { paths, prefix }: GetAttributes, caller: Caller): Promise<Record<string, string>[]> {
    const all = await this.#use(id, caller, async (files) => files.attributes(paths, prefix, { signal: caller.signal }));
    return all.map((attributes) => Object.fromEntries(attributes));
  }

  /** Replaces all attributes whose names begin with the prefix */
  async setAttributes(id: string, request: SetAttributes, caller: Caller): Promise<void> {
    const { path, prefix, attributes } = request;
    const given = { prefix, attributes: new Map(Object.entries(attributes)) };
    await this.#use(id, caller, async (files) => files.setAttributes(path, given, { signal: caller.signal }));
  }

  /** Resolves when the watch is active: later changes are reported */
  async watch(
    id: string,
    query: api.WatchFilesQuery,
    caller: Caller,
    onFlush?: (flush: Flush) => void,
  ): Promise<AsyncIterable<api.FileEvent>> {
    const { path, recursive = false, debounce_ms: debounceMs, user } = query;
    return this.#stream(id, caller, (files, signal) => eventsOf(files.watch(path, { recursive, debounceMs, user, signal, onFlush })));
  }

  /** Rejects before the first byte if the path cannot be packed */
  async pack(id: string, query: api.ReadTarQuery, caller: Caller): Promise<AsyncIterable<Buffer>> {
    const { path, ...how } = query;
    return this.#stream(id, caller, (files, signal) => files.pack(path, { ...how, signal }));
  }

  async unpack(id: string, query: api.WriteTarQuery, archive: AsyncIterable<Uint8Array>, caller: Caller): Promise<api.UnpackResult> {
    const { path, user } = query;
    return this.#use(id, caller, async (files) => files.unpack(path, archive, { user, signal: caller.signal }));
  }

  async #use<V>(id: string, caller: Caller, work: (files: GuestFiles) => Promise<V>): Promise<V> {
    return this.#sandboxes.use(id, caller, async (sandbox) => work(sandbox.files));
  }

  /** Waits for the first chunk, so that an early failure is an error response and not a broken stream */
  async #stream<V>(
    id: string,
    caller: Caller,
    open: (files: GuestFiles, signal: AbortSignal) => AsyncGenerator<V>,
  ): Promise<AsyncIterableIterator<V>> {
    const lease = await this.#sandboxes.lease(id, caller);
    try {
      const reading = open(lease.sandbox.files, caller.signal);
      return rest(reading, await reading.next(), lease, caller);
    } catch (error) {
      lease.release();
      throw lease.explain(error);
    }
  }
}

/** Not a generator: one that was never started skips its `finally`, and agent stream and lease would stay open */
function rest<V>(reading: AsyncGenerator<V>, first: IteratorResult<V>, lease: Lease, caller: Caller): AsyncIterableIterator<V> {
  let isReleased = false;
  const release = async (): Promise<void> => {
    if (isReleased) return;
    isReleased = true;
    lease.release();
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

/** A watch that fails after its start reports the failure in its last event */
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
