// Watches whose changes are kept until a client asks for them: for SDKs that cannot wait for a stream.

import { ForkdError, messageOf } from "../../errors.ts";
import { newId } from "../../util/id.ts";
import type { FileEvent, WatchFilesQuery } from "../../api/files.ts";
import type { Services } from "../../http/services.ts";
import type { Change } from "./watch.ts";

const MAX_CHANGES = 10_000;
const MAX_WATCHERS = 1000;
/** A client that does not ask for so long has forgotten it */
const FORGOTTEN_MS = 3_600_000;

type Watcher = { sandbox: string; changes: Change[]; ended: AbortController; askedMs: number; failure?: unknown };
type Needs = Pick<Services, "manager" | "daemon">;

export class Watchers {
  readonly #services: Needs;
  readonly #all = new Map<string, Watcher>();

  constructor(services: Needs) {
    this.#services = services;
  }

  async create(
    sandbox: string,
    query: WatchFilesQuery,
    read: (events: AsyncIterable<FileEvent>) => AsyncIterable<Change>,
  ): Promise<string> {
    this.#forget();
    if (this.#all.size >= MAX_WATCHERS)
      throw new ForkdError("BUSY", `Cannot watch ${query.path}: there are ${MAX_WATCHERS} watchers already.`);
    const ended = new AbortController();
    const signal = AbortSignal.any([ended.signal, this.#services.daemon.stopping]);
    const caller = { principal: "local", maxSandboxes: null, requestId: "watcher", signal };
    const events = await this.#services.manager.files.watch(sandbox, query, caller);
    const watcher: Watcher = { sandbox, changes: [], ended, askedMs: Date.now() };
    const id = newId("wt");
    this.#all.set(id, watcher);
    void this.#keep(watcher, read(events)).catch((error: unknown) => {
      // told to whoever asks next
      watcher.failure = error;
    });
    return id;
  }

  /** What has changed since it was last asked for */
  take(sandbox: string, id: string): Change[] {
    const watcher = this.#get(sandbox, id);
    watcher.askedMs = Date.now();
    if (watcher.changes.length === 0 && watcher.failure !== undefined && !watcher.ended.signal.aborted)
      throw watcher.failure instanceof ForkdError ? watcher.failure : new ForkdError("INTERNAL", messageOf(watcher.failure));
    return watcher.changes.splice(0);
  }

  remove(sandbox: string, id: string): void {
    const watcher = this.#get(sandbox, id);
    this.#all.delete(id);
    end(watcher);
  }

  async #keep(watcher: Watcher, changes: AsyncIterable<Change>): Promise<void> {
    for await (const change of changes) {
      watcher.changes.push(change);
      if (watcher.changes.length > MAX_CHANGES) watcher.changes.shift();
    }
  }

  #get(sandbox: string, id: string): Watcher {
    const watcher = this.#all.get(id);
    if (watcher?.sandbox === sandbox) return watcher;
    throw new ForkdError("NOT_FOUND", `watcher with id ${id} not found`);
  }

  /** Those of sandboxes that are gone, and those that nobody asks any more */
  #forget(): void {
    for (const [id, watcher] of this.#all) {
      if (watcher.failure === undefined && Date.now() - watcher.askedMs < FORGOTTEN_MS) continue;
      this.#all.delete(id);
      end(watcher);
    }
  }
}

function end({ ended }: Watcher): void {
  ended.abort(new ForkdError("CANCELLED", "The watcher was removed."));
}
