// Polled file watches: changes are buffered until the client fetches them, for SDKs without streaming.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { newId } from "@forkd/runtime/util/id";
import type { FileEvent, WatchFilesQuery } from "../../api/files.ts";
import type { Services } from "../../dispatch/services.ts";
import type { SandboxInfo } from "../../api/sandbox.ts";
import { ownCaller, type Caller } from "../../service/caller.ts";
import type { Change } from "./watch.ts";

const MAX_CHANGES = 10_000;
/** Buffer limit per watcher: the guest chooses the names, and a change can have paths of 64 KiB */
const MAX_BYTES = 1024 * 1024;
const MAX_BYTES_IN_ALL = 64 * 1024 * 1024;
const MAX_WATCHERS = 1000;
/** Limit per sandbox, so that one sandbox cannot use up the total limit */
const MAX_WATCHERS_OF_ONE = 32;
/** A watcher without requests is removed after this time */
const FORGOTTEN_MS = 3_600_000;

/** How long an unresponsive guest can delay a response */
const FLUSH_WITHIN_MS = 5000;

type Watcher = {
  sandbox: string;
  path: string;
  changes: Change[];
  /** size of the buffered changes as JSON */
  bytes: number;
  flush: (() => Promise<void>) | undefined;
  ended: AbortController;
  askedMs: number;
  failure?: unknown;
};
type Needs = Pick<Services, "manager" | "daemon">;

/** `caller` stays valid for the life of the watcher */
export type ReadChanges = (events: AsyncIterable<FileEvent>, caller: Caller) => AsyncIterable<Change>;

export class Watchers {
  readonly #services: Needs;
  readonly #all = new Map<string, Watcher>();
  /** size of all buffered changes */
  #bytes = 0;

  constructor(services: Needs) {
    this.#services = services;
  }

  async create({ id: sandbox, project }: Pick<SandboxInfo, "id" | "project">, query: WatchFilesQuery, read: ReadChanges): Promise<string> {
    this.#forget();
    if (this.#all.size >= MAX_WATCHERS)
      throw new ForkdError("BUSY", `Cannot watch ${query.path}: there are ${MAX_WATCHERS} watchers already.`);
    if ([...this.#all.values()].filter((watcher) => watcher.sandbox === sandbox).length >= MAX_WATCHERS_OF_ONE)
      throw new ForkdError("BUSY", `Cannot watch ${query.path}: the sandbox has ${MAX_WATCHERS_OF_ONE} watchers already.`);
    const ended = new AbortController();
    const signal = AbortSignal.any([ended.signal, this.#services.daemon.stopping]);
    const caller = { ...ownCaller("local", project), requestId: "watcher", signal };
    let flush: Watcher["flush"];
    const events = await this.#services.manager.files.watch(sandbox, query, caller, (given) => (flush = given));
    const watcher: Watcher = { sandbox, path: query.path, changes: [], bytes: 0, flush, ended, askedMs: Date.now() };
    const id = newId("wt");
    this.#all.set(id, watcher);
    void this.#keep(watcher, read(events, caller)).catch((error: unknown) => {
      // the next request reports the failure
      watcher.failure = error;
    });
    return id;
  }

  /** Changes since the last request, including all that happened before this call */
  async take(sandbox: string, id: string): Promise<Change[]> {
    const watcher = this.#get(sandbox, id);
    watcher.askedMs = Date.now();
    await flushed(watcher);
    if (watcher.changes.length === 0 && watcher.failure !== undefined && !watcher.ended.signal.aborted)
      throw watcher.failure instanceof ForkdError ? watcher.failure : new ForkdError("INTERNAL", messageOf(watcher.failure));
    this.#bytes -= watcher.bytes;
    watcher.bytes = 0;
    return watcher.changes.splice(0);
  }

  remove(sandbox: string, id: string): void {
    this.#end(id, this.#get(sandbox, id));
  }

  async #keep(watcher: Watcher, changes: AsyncIterable<Change>): Promise<void> {
    for await (const change of changes) {
      if (watcher.ended.signal.aborted) return;
      const bytes = JSON.stringify(change).length;
      const isFull = watcher.changes.length >= MAX_CHANGES || watcher.bytes + bytes > MAX_BYTES;
      if (isFull || this.#bytes + bytes > MAX_BYTES_IN_ALL)
        throw new ForkdError(
          "FILE_FAILED",
          `Cannot continue to watch ${watcher.path}: ${watcher.changes.length} changes were not fetched.`,
        );
      this.#bytes += bytes;
      watcher.bytes += bytes;
      watcher.changes.push(change);
    }
  }

  #get(sandbox: string, id: string): Watcher {
    const watcher = this.#all.get(id);
    if (watcher?.sandbox === sandbox) return watcher;
    throw new ForkdError("NOT_FOUND", `watcher with id ${id} not found`);
  }

  /** Removes watchers of ended sandboxes, and watchers without recent requests */
  #forget(): void {
    for (const [id, watcher] of this.#all) {
      if (watcher.failure === undefined && Date.now() - watcher.askedMs < FORGOTTEN_MS) continue;
      this.#end(id, watcher);
    }
  }

  #end(id: string, watcher: Watcher): void {
    this.#all.delete(id);
    this.#bytes -= watcher.bytes;
    watcher.bytes = 0;
    watcher.ended.abort(new ForkdError("CANCELLED", "The watcher was removed."));
  }
}

async function flushed({ flush, failure }: Watcher): Promise<void> {
  if (!flush || failure !== undefined) return;
  const inTime = new AbortController();
  const late = sleep(FLUSH_WITHIN_MS, undefined, { signal: inTime.signal }).catch(() => undefined);
  await Promise.race([flush(), late]);
  inTime.abort();
}
