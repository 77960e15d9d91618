// Snapshots on disk: one folder per id, with or without a tag.

import { rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import * as z from "zod";
import { layersIn, type Layer } from "../disk/layer.ts";
import { ForkdError, messageOf } from "../errors.ts";
import type { Home } from "../home.ts";
import { withStaging } from "../host/staging.ts";
import { bootId } from "../util/boot-id.ts";
import { checkName, checkQualifiedName } from "../util/name.ts";
import { deltasIn } from "./deltas.ts";
import { readManifest, writeManifest, type StoredManifest, type Unsynced } from "./durable.ts";
import { FailedLayers, isFailedSync } from "./failed-layers.ts";
import type { SnapshotManifest } from "./manifest.ts";
import { Tags } from "./tags.ts";
import { namesIn } from "../util/names-in.ts";
import { notFound } from "../util/not-found.ts";
import { Semaphore } from "../util/semaphore.ts";
import { syncPath } from "../util/sync-path.ts";
import { schemaProblem } from "../util/schema-problem.ts";

/** A snapshot and the paths of its parts */
export type Snapshot = {
  manifest: SnapshotManifest;
  dir: string;
  deviceState: string;
  /** the memory file of a base, or its own delta file */
  memory: string;
  /** all its delta files, oldest first; none for a base */
  deltas: string[];
  /** layers of its disk, lowest first; empty without a disk */
  layers: Layer[];
};

type ListOptions = { onInvalid?: (error: ForkdError) => void };

export class SnapshotStore {
  readonly #home: Home;
  readonly #tags: Tags;
  /** manifests of snapshots on disk; only their tags change */
  readonly #known = new Map<string, SnapshotManifest>();
  /** by id */
  readonly #syncing = new Map<string, Promise<void>>();
  /** write errors by id of the snapshot */
  readonly #failures = new Map<string, Error>();
  readonly #failedLayers: FailedLayers;
  /** in sequence: a rename and the end of a sync both read and write the manifest */
  readonly #rewriting = new Semaphore(1);

  constructor(home: Home) {
    this.#home = home;
    this.#tags = new Tags(join(home.snapshots, "tags"));
    this.#failedLayers = new FailedLayers(join(home.snapshots, "failed-layers"));
  }

  /** Throws EXISTS when the tag is reserved, or in use and not to be replaced */
  async reserve(tag: string, opts: { replace?: boolean | undefined } = {}): Promise<void> {
    await this.#tags.reserve(tag, opts);
  }

  async release(tag: string): Promise<void> {
    await this.#tags.release(tag);
  }

  /** Whether the tag is reserved for a new snapshot, whose folder may exist before its tag */
  async isReserved(tag: string): Promise<boolean> {
    return this.#tags.isReserved(tag);
  }

  /** Removes reservations of ended processes, and tags without a snapshot, which a power cut can leave behind */
  async sweep(): Promise<void> {
    await this.#tags.sweep();
    await this.#failedLayers.sweep();
    const tags = await this.#tags.all();
    const ids = new Set(await this.ids());
    for (const [tag, id] of tags) if (!ids.has(id)) await this.#forget(tag, id);
  }

  async #forget(tag: string, id: string): Promise<void> {
    try {
      await this.reserve(tag, { replace: true });
    } catch (error) {
      // reserved for a new snapshot, or another file
      if (error instanceof ForkdError && (error.code === "EXISTS" || error.code === "BAD_NAME")) return;
      throw error;
    }
    if ((await this.#tags.idOf(tag)) === id) await this.#tags.remove(tag);
    await this.release(tag);
  }

  /** Paths of the parts in a folder, staged or final */
  partsIn(dir: string, manifest: SnapshotManifest): Snapshot {
    const memory = join(dir, manifest.memory.kind === "base" ? "memory.ram" : "memory.delta");
    const layers = layersIn(dir, manifest.disk?.layers ?? []);
    return { manifest, dir, deviceState: join(dir, "device.state"), memory, deltas: deltasIn(dir, manifest), layers };
  }

  /** Publishes a staged folder as the snapshot of its tag: first the folder, then the tag, so that a tag never names an incomplete snapshot */
  async publish(staged: string, manifest: SnapshotManifest): Promise<Snapshot> {
    const snapshot = await this.place(staged, manifest);
    try {
      // Neither this nor the manifest is synced: the memory image is not on disk yet either.
      await this.#tags.set(manifest.tag, manifest.id, "quick");
    } catch (error) {
      await rm(snapshot.dir, { recursive: true, force: true });
      throw error;
    }
    return snapshot;
  }

  /** Publishes a staged folder without a tag; the next sweep removes it, unless it is needed or a reserved tag is for it */
  async place(staged: string, manifest: SnapshotManifest): Promise<Snapshot> {
    await writeManifest(staged, { manifest, unsynced: { boot: await bootId() } });
    const dir = this.#dirOf(manifest.id);
    try {
      await rename(staged, dir);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
      throw new ForkdError("EXISTS", `Cannot make snapshot ${manifest.id}: it is here already.`, { cause: error });
    }
    this.#known.delete(manifest.id);
    this.#failures.delete(manifest.id);
    return this.partsIn(dir, manifest);
  }

  /** Sets a reserved tag to a snapshot, in place of another one */
  async name(tag: string, id: string): Promise<void> {
    await this.#tags.set(tag, id, "durable");
  }

  /** Waits until a snapshot is on disk, with its tag and all snapshots below it; an unsynced one is refused after a power cut */
  async sync(id: string): Promise<void> {
    const underWay = this.#syncing.get(id);
    if (underWay) return underWay;
    const work = this.#sync(id).finally(() => this.#syncing.delete(id));
    this.#syncing.set(id, work);
    return work;
  }

  async #sync(id: string): Promise<void> {
    const dir = this.#dirOf(id);
    const { manifest, unsynced } = await readManifest(dir);
    if (!unsynced) return;
    if (unsynced.boot !== (await bootId())) throw wentDown(id);
    if (unsynced.error !== undefined) throw notTaken(manifest.tag, unsynced.error);
    if (manifest.memory.kind === "delta") await this.sync(manifest.memory.base);
    const { memory, deltas, deviceState, layers } = this.partsIn(dir, manifest);
    try {
      const known = this.#failures.get(id);
      if (known !== undefined) throw known;
      // later branches share the deltas, as they share the layers
      for (const path of [...deltas, ...layers.map((layer) => layer.path)]) await this.#failedLayers.sync(path);
      for (const path of [...(deltas.length === 0 ? [memory] : []), deviceState, dir, dirname(dir)]) await syncPath(path);
      // without its tag, after a power cut, the snapshot would be swept as unused
      await this.#tags.sync(id);
      await this.#rewrite(dir, (stored) => ({ ...stored, unsynced: undefined }));
    } catch (error) {
      if (!isFailedSync(error)) throw error;
      this.#failures.set(id, error);
      await this.#noteFailure(dir, { boot: unsynced.boot, error: messageOf(error) });
      throw notTaken(manifest.tag, messageOf(error), error);
    }
  }

  /** For later processes of this boot; this process has it in memory */
  async #noteFailure(dir: string, unsynced: Unsynced): Promise<void> {
    try {
      await this.#rewrite(dir, (stored) => ({ ...stored, unsynced }));
    } catch (error) {
      // a failing disk cannot store the note either
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }

  /** By tag or id */
  async get(name: string): Promise<Snapshot> {
    checkQualifiedName("Snapshot", name);
    const id = await this.#tags.idOf(name);
    if (id === undefined && !(await this.ids()).includes(name)) throw notFound("snapshot", name, (await this.tags()).keys());
    if (id === undefined) return this.byId(name);
    if (!id.startsWith("sn-")) throw new ForkdError("SNAPSHOT_INVALID", `Cannot use snapshot ${name}: its tag is damaged.`);
    // A tag is removed before its snapshot, so the cached manifest is still valid.
    const known = this.#known.get(id);
    const { dir, manifest } = known ? this.partsIn(this.#dirOf(id), known) : await this.byId(id, name);
    return this.partsIn(dir, { ...manifest, tag: name });
  }

  /** @param name tag or id of the request, for messages */
  async byId(id: string, name: string = id): Promise<Snapshot> {
    const dir = this.#dirOf(id);
    let stored: StoredManifest;
    try {
      stored = await readManifest(dir);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // a power cut can leave the folder of a new snapshot without its files
      if (code === "ENOENT" && (await this.ids()).includes(id))
        throw new ForkdError("SNAPSHOT_INVALID", `Cannot use snapshot ${name}: its manifest is missing.`, { cause: error });
      if (code === "ENOENT") throw new ForkdError("NOT_FOUND", `There is no snapshot ${name}.`);
      if (code !== undefined) throw error;
      throw new ForkdError("SNAPSHOT_INVALID", `Cannot use snapshot ${name}: its manifest is not valid: ${reasonOf(error)}.`, {
        cause: error,
      });
    }
    const { manifest, unsynced } = stored;
    if (unsynced && unsynced.boot !== (await bootId())) throw wentDown(name);
    if (!unsynced) this.#known.set(id, manifest);
    return this.partsIn(dir, manifest);
  }

  /** A snapshot whose files another one can share; undefined if it was removed, is damaged, or was not written to disk */
  async shareable(id: string): Promise<Snapshot | undefined> {
    try {
      const { unsynced } = await readManifest(this.#dirOf(id));
      if (unsynced?.error !== undefined || this.#failures.has(id)) return undefined;
      return await this.byId(id);
    } catch {
      return undefined; // for any error the answer is the same: nothing can be shared
    }
  }

  async isReadable(id: string): Promise<boolean> {
    try {
      await this.byId(id);
      return true;
    } catch (error) {
      if (error instanceof ForkdError) return false;
      throw error;
    }
  }

  /** The id of a tag, or the name itself; also for a damaged or removed snapshot */
  async idOf(name: string): Promise<string> {
    checkQualifiedName("Snapshot", name);
    return (await this.#tags.idOf(name)) ?? name;
  }

  /** The id of a tag, if it exists */
  async tagged(tag: string): Promise<string | undefined> {
    return this.#tags.idOf(checkQualifiedName("Tag", tag));
  }

  /** Every tag with the id of its snapshot */
  async tags(): Promise<Map<string, string>> {
    return this.#tags.all();
  }

  /** Every readable snapshot with a tag; `onInvalid` is called for the others */
  async list(opts: ListOptions = {}): Promise<Snapshot[]> {
    return this.#read([...(await this.#tags.all()).keys()], async (tag) => this.get(tag), opts);
  }

  /** Every readable snapshot, including those that are kept only for others that build on them */
  async everything(opts: ListOptions = {}): Promise<Snapshot[]> {
    return this.#read(await this.ids(), async (id) => this.byId(id), opts);
  }

  /** Of every folder, readable or not */
  async ids(): Promise<string[]> {
    return (await namesIn(this.#home.snapshots)).filter((name) => name.startsWith("sn-"));
  }

  /** Snapshots that store only the difference from this one */
  async dependentsOf(id: string): Promise<Snapshot[]> {
    return (await this.everything()).filter(({ manifest: { memory } }) => memory.kind === "delta" && memory.base === id);
  }

  /** Gives a snapshot another tag */
  async rename(tag: string, to: string, opts: { replace?: boolean } = {}): Promise<Snapshot> {
    const snapshot = await this.get(tag);
    await this.reserve(to, opts);
    try {
      await this.#tags.rename(tag, to);
      await this.#rewrite(snapshot.dir, (stored) => ({ ...stored, manifest: { ...stored.manifest, tag: to } }));
      return this.partsIn(snapshot.dir, { ...snapshot.manifest, tag: to });
    } finally {
      await this.release(to);
    }
  }

  /** Sets the tag that a complete snapshot was made for, when its maker died just before */
  async retag(id: string, tag: string): Promise<void> {
    await this.reserve(tag);
    try {
      await this.#tags.set(tag, id, "durable");
    } finally {
      await this.release(tag);
    }
  }

  /** Removes every tag of a snapshot and keeps the data */
  async untag(id: string): Promise<boolean> {
    let found = false;
    for (const [tag, named] of await this.#tags.all()) {
      if (named !== id) continue;
      found = true;
      await this.#tags.remove(tag);
    }
    return found;
  }

  /** Removes a snapshot that no other one builds on, by tag or id; also a damaged one */
  async remove(name: string): Promise<void> {
    const id = await this.idOf(name);
    const dependents = await this.dependentsOf(id);
    if (dependents.length > 0) {
      const names = dependents.map((other) => other.manifest.tag).join(", ");
      throw new ForkdError("IN_USE", `Cannot remove snapshot ${name}: ${names} ${dependents.length === 1 ? "builds" : "build"} on it.`);
    }
    const hasData = (await this.ids()).includes(id);
    this.#known.delete(id);
    const hadTag = await this.untag(id);
    if (!hasData && !hadTag) throw notFound("snapshot", name, (await this.tags()).keys());
    // Rename it away before the removal: a partly removed folder would look like a snapshot.
    if (!hasData) return;
    await withStaging(this.#home, async (staging) => {
      await rename(this.#dirOf(id), join(staging, "snapshot"));
      // Sync before its files are removed: a power cut must not bring back a folder without them.
      await syncPath(this.#home.snapshots);
    });
  }

  async #read(names: readonly string[], read: (name: string) => Promise<Snapshot>, opts: ListOptions): Promise<Snapshot[]> {
    const snapshots: Snapshot[] = [];
    for (const name of names) {
      try {
        snapshots.push(await read(name));
      } catch (error) {
        if (!(error instanceof ForkdError)) throw error;
        // removed since its name was read
        if (error.code !== "NOT_FOUND") opts.onInvalid?.(error);
      }
    }
    return snapshots;
  }

  async #rewrite(dir: string, change: (stored: StoredManifest) => StoredManifest): Promise<void> {
    await this.#rewriting.run(async () => writeManifest(dir, change(await readManifest(dir))));
  }

  #dirOf(id: string): string {
    return join(this.#home.snapshots, checkName("Snapshot id", id));
  }
}

function notTaken(name: string, why: string, cause?: unknown): ForkdError {
  return new ForkdError("DISK_FAILED", `Cannot bring snapshot ${name} to disk: ${why}. It is refused after a power cut.`, { cause });
}

function wentDown(name: string): ForkdError {
  return new ForkdError("SNAPSHOT_INVALID", `Cannot use snapshot ${name}: the host went down before it was on disk.`);
}

function reasonOf(error: unknown): string {
  return error instanceof z.ZodError ? schemaProblem(error) : messageOf(error);
}
