// State of the cluster in a folder, which the gateways of one machine share. Each version of an object is one file that
// is never changed: NAME@VERSION.json. A new version is created exclusively, so that of two writers one gets a conflict.

import { randomUUID } from "node:crypto";
import { watch } from "node:fs";
import { link, mkdir, open, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { syncPath } from "@forkd/runtime/util/sync-path";
import { Conflict, KINDS, type ClusterState, type Kind, type Removed, type Stored } from "./state.ts";

/** Changes are noticed by a watch; the interval is for file systems without one */
const RESCAN_MS = 2000;
const SETTLE_MS = 5;
const KEEP_REMOVED_MS = 24 * 3600 * 1000;
/** Limit of one object and of all objects of a kind: a foreign file must not fill the memory */
const MAX_BYTES = 64 * 1024;
const MAX_OBJECTS = 100_000;
const FILE = /^([A-Za-z0-9._~-]{1,140})@(\d{1,15})\.json$/;

/** `value` null: the object was removed at that time */
type Version = { number: number; value: Record<string, unknown> | null; atMs: number };

export async function openFolderState(dir: string, opts: { onError: (message: string) => void }): Promise<ClusterState> {
  const state = new FolderState(dir, opts.onError);
  await state.start();
  return state;
}

class FolderState implements ClusterState {
  readonly #dir: string;
  readonly #onError: (message: string) => void;
  readonly #known: Record<Kind, Map<string, Version>> = { tokens: new Map(), projects: new Map(), tags: new Map(), logins: new Map() };
  readonly #live: Record<Kind, Map<string, Stored>> = { tokens: new Map(), projects: new Map(), tags: new Map(), logins: new Map() };
  readonly #listeners = new Set<(kind: Kind, name: string) => void>();
  readonly #stack = new AsyncDisposableStack();
  #scanning: Promise<void> | null = null;
  #isDirty = false;
  #isFailing = false;

  constructor(dir: string, onError: (message: string) => void) {
    this.#dir = dir;
    this.#onError = onError;
  }

  async start(): Promise<void> {
    try {
      for (const kind of KINDS) await mkdir(join(this.#dir, kind), { recursive: true, mode: 0o700 });
      await this.#scanAll();
    } catch (error) {
      throw new ForkdError("BAD_CONFIG", `Cannot use the state folder ${this.#dir}: ${messageOf(error)}.`, { cause: error });
    }
    for (const kind of KINDS) {
      const watcher = watch(join(this.#dir, kind), () => void setTimeout(() => this.#rescan(), SETTLE_MS));
      // the interval below continues without the watch
      watcher.on("error", () => watcher.close());
      this.#stack.defer(() => watcher.close());
    }
    const timer = setInterval(() => this.#rescan(), RESCAN_MS);
    this.#stack.defer(() => clearInterval(timer));
  }

  get(kind: Kind, name: string): Stored | undefined {
    return this.#live[kind].get(name);
  }

  all(kind: Kind): ReadonlyMap<string, Stored> {
    return this.#live[kind];
  }

  removed(kind: Kind): readonly Removed[] {
    const since = Date.now() - KEEP_REMOVED_MS;
    return [...this.#known[kind]].flatMap(([name, { value, atMs }]) =>
      value === null && atMs > since ? [{ name, removedAtMs: atMs }] : [],
    );
  }

  async put(kind: Kind, name: string, value: Record<string, unknown>, replaces: string | null): Promise<void> {
    await this.#write(kind, name, value, replaces);
  }

  async remove(kind: Kind, name: string, replaces: string): Promise<void> {
    await this.#write(kind, name, null, replaces);
  }

  subscribe(listener: (kind: Kind, name: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
    await this.#scanning;
  }

  async #write(kind: Kind, name: string, value: Record<string, unknown> | null, replaces: string | null): Promise<void> {
    if (!FILE.test(`${name}@1.json`))
      throw new ForkdError("BAD_NAME", `Cannot store ${JSON.stringify(name.slice(0, 100))} in the state of the cluster.`);
    const known = this.#known[kind].get(name);
    const current = known?.value ? String(known.number) : null;
    if (current !== replaces) throw new Conflict(`${kind}/${name} has version ${current}, not ${replaces}`);
    if (!known && this.#known[kind].size >= MAX_OBJECTS)
      throw new ForkdError("LIMIT_REACHED", `Cannot store ${name}: the cluster has ${MAX_OBJECTS} ${kind}.`);
    const number = (known?.number ?? 0) + 1;
    const version: Version = { number, value, atMs: Date.now() };
    const folder = join(this.#dir, kind);
    const path = join(folder, `${name}@${number}.json`);
    const staged = join(this.#dir, `${randomUUID()}.tmp`);
    try {
      {
        await using file = await open(staged, "wx", 0o600);
        await file.writeFile(JSON.stringify({ value, at_ms: version.atMs }));
        await file.sync();
      }
      await link(staged, path);
      await syncPath(folder);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") {
        await this.#scanAll();
        throw new Conflict(`${kind}/${name} was changed by another gateway`);
      }
      throw unavailable(error);
    } finally {
      await rm(staged, { force: true }).catch(() => undefined); // the folder is away; the write has failed with its reason
    }
    // another gateway may have written several versions and removed the one with this number
    await this.#scan(kind).catch((error: unknown) => {
      throw unavailable(error);
    });
    if ((this.#known[kind].get(name)?.number ?? 0) > number) {
      await rm(path, { force: true });
      throw new Conflict(`${kind}/${name} was changed by another gateway`);
    }
    this.#take(kind, name, version);
    // a gateway that reads the folder now takes the highest version; the older one is of no use
    if (known) await rm(join(folder, `${name}@${known.number}.json`), { force: true }).catch(() => undefined);
  }

  #rescan(): void {
    this.#isDirty = true;
    this.#scanning ??= this.#scanUntilClean().finally(() => (this.#scanning = null));
  }

  async #scanUntilClean(): Promise<void> {
    while (this.#isDirty) {
      this.#isDirty = false;
      try {
        await this.#scanAll();
        this.#isFailing = false;
      } catch (error) {
        // reads continue from memory
        if (!this.#isFailing) this.#onError(`the state folder cannot be read: ${messageOf(error)}`);
        this.#isFailing = true;
      }
    }
  }

  async #scanAll(): Promise<void> {
    for (const kind of KINDS) await this.#scan(kind);
  }

  async #scan(kind: Kind): Promise<void> {
    const folder = join(this.#dir, kind);
    for (const file of await readdir(folder)) {
      const [, name, digits] = FILE.exec(file) ?? [];
      if (name === undefined) continue;
      const number = Number(digits);
      const known = this.#known[kind].get(name);
      if (known && known.number >= number) {
        if (known.number > number || isOld(known)) await rm(join(folder, file), { force: true });
        continue;
      }
      const version = await readVersion(join(folder, file), number);
      if (!version) continue;
      this.#take(kind, name, version);
      if (isOld(version)) await rm(join(folder, file), { force: true });
    }
    // their files are gone, so that a new object of the name begins with the first version
    for (const [name, version] of this.#known[kind]) if (isOld(version)) this.#known[kind].delete(name);
  }

  #take(kind: Kind, name: string, version: Version): void {
    const known = this.#known[kind].get(name);
    if (known && known.number >= version.number) return;
    this.#known[kind].set(name, version);
    if (version.value) this.#live[kind].set(name, { value: version.value, version: String(version.number) });
    else this.#live[kind].delete(name);
    for (const listener of this.#listeners) listener(kind, name);
  }
}

/** Removed so long ago that it need not be known any more */
function isOld({ value, atMs }: Version): boolean {
  return value === null && atMs < Date.now() - KEEP_REMOVED_MS;
}

/** undefined: replaced meanwhile, or not a file of a gateway */
async function readVersion(path: string, number: number): Promise<Version | undefined> {
  try {
    const bytes = await readFile(path);
    if (bytes.length > MAX_BYTES) return undefined;
    const { value, at_ms: atMs } = JSON.parse(bytes.toString()) as { value?: unknown; at_ms?: unknown };
    if (typeof atMs !== "number" || typeof value !== "object") return undefined;
    return { number, value: value as Record<string, unknown> | null, atMs };
  } catch (error) {
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

function unavailable(error: unknown): ForkdError {
  return new ForkdError("CLUSTER_STATE_UNAVAILABLE", `Cannot change the state of the cluster: ${messageOf(error)}.`, { cause: error });
}
