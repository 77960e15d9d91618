// Snapshots on disk: a folder per id, a name or none for each.

import { readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
import { layersIn, type Layer } from "../disk/layer.ts";
import { ForkdError, messageOf } from "../errors.ts";
import type { Home } from "../home.ts";
import { withStaging } from "../host/staging.ts";
import { writeFileAtomic } from "../util/atomic-file.ts";
import { checkName } from "../util/name.ts";
import { durability, markUnsynced, syncSnapshot } from "./durable.ts";
import { snapshotManifest, type SnapshotManifest } from "./manifest.ts";
import { Tags } from "./tags.ts";
import { namesIn } from "../util/names-in.ts";

/** A snapshot and where its parts lie */
export type Snapshot = {
  manifest: SnapshotManifest;
  dir: string;
  deviceState: string;
  /** the memory file of a base, or the delta file */
  memory: string;
  /** of its disk, lowest first; none when it has no disk */
  layers: Layer[];
};

type ListOptions = { onInvalid?: (error: ForkdError) => void };

export class SnapshotStore {
  readonly #home: Home;
  readonly #tags: Tags;
  /** of snapshots that are on disk, which never change but for their name */
  readonly #known = new Map<string, SnapshotManifest>();

  constructor(home: Home) {
    this.#home = home;
    this.#tags = new Tags(join(home.snapshots, "tags"));
  }

  /** Throws EXISTS when the tag is being given, or taken, unless it is to be taken away */
  async reserve(tag: string, opts: { replace?: boolean | undefined } = {}): Promise<void> {
    await this.#tags.reserve(tag, opts);
  }

  async release(tag: string): Promise<void> {
    await this.#tags.release(tag);
  }

  /** Whether somebody is giving the tag to a snapshot now, whose folder may be there before its tag is */
  async isReserved(tag: string): Promise<boolean> {
    return this.#tags.isReserved(tag);
  }

  /** Forgets the reservations of processes that are gone */
  async sweep(): Promise<void> {
    await this.#tags.sweep();
  }

  /** Paths of the parts inside a folder, staged or final */
  partsIn(dir: string, manifest: SnapshotManifest): Snapshot {
    const memory = join(dir, manifest.memory.kind === "base" ? "memory.ram" : "memory.delta");
    return { manifest, dir, deviceState: join(dir, "device.state"), memory, layers: layersIn(dir, manifest.disk?.layers ?? []) };
  }

  /** Makes a staged folder the snapshot of its tag: first the folder, then the tag, so that a tag never names half a thing */
  async publish(staged: string, manifest: SnapshotManifest): Promise<Snapshot> {
    const snapshot = await this.place(staged, manifest);
    try {
      await this.name(manifest.tag, manifest.id);
    } catch (error) {
      await rm(snapshot.dir, { recursive: true, force: true });
      throw error;
    }
    return snapshot;
  }

  /** Makes a staged folder a snapshot that has no name yet: what nothing needs and no reserved tag is for goes at the next occasion */
  async place(staged: string, manifest: SnapshotManifest): Promise<Snapshot> {
    await this.#writeManifest(staged, manifest);
    await markUnsynced(staged);
    const dir = this.#dirOf(manifest.id);
    try {
      await rename(staged, dir);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
      throw new ForkdError("EXISTS", `Cannot make snapshot ${manifest.id}: it is here already.`, { cause: error });
    }
    this.#known.delete(manifest.id);
    return this.partsIn(dir, manifest);
  }

  /** Gives a snapshot a tag that is reserved, away from the one that had it */
  async name(tag: string, id: string): Promise<void> {
    await this.#tags.set(tag, id);
  }

  /** Waits until a snapshot is on disk; one that is not is refused after a power cut */
  async sync(snapshot: Snapshot): Promise<void> {
    const { dir, memory, deviceState, layers } = snapshot;
    if ((await durability(dir)) !== "unsynced") return;
    await syncSnapshot(dir, [memory, deviceState, ...layers.map(({ path }) => path), join(dir, "manifest.json")]);
  }

  /** By tag or id */
  async get(name: string): Promise<Snapshot> {
    checkName("Snapshot", name);
    const id = await this.#tags.idOf(name);
    if (id === undefined) return this.byId(name);
    // a tag goes before its snapshot does, so what is known of it is still there
    const known = this.#known.get(id);
    const { dir, manifest } = known ? this.partsIn(this.#dirOf(id), known) : await this.byId(id, name);
    return this.partsIn(dir, { ...manifest, tag: name });
  }

  /** @param name what it was asked for by, for messages */
  async byId(id: string, name: string = id): Promise<Snapshot> {
    const dir = this.#dirOf(id);
    let text: string;
    try {
      text = await readFile(join(dir, "manifest.json"), "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      throw new ForkdError("NOT_FOUND", `There is no snapshot ${name}.`);
    }
    const state = await durability(dir);
    if (state === "lost")
      throw new ForkdError("SNAPSHOT_INVALID", `Cannot use snapshot ${name}: the host went down before it was on disk.`);
    try {
      const manifest = snapshotManifest.parse(JSON.parse(text));
      if (state === "synced") this.#known.set(id, manifest);
      return this.partsIn(dir, manifest);
    } catch (error) {
      throw new ForkdError("SNAPSHOT_INVALID", `Cannot use snapshot ${name}: its manifest is not valid: ${reasonOf(error)}.`, {
        cause: error,
      });
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

  /** The id behind a tag, or the name itself; also for a snapshot that is damaged or gone */
  async idOf(name: string): Promise<string> {
    checkName("Snapshot", name);
    return (await this.#tags.idOf(name)) ?? name;
  }

  /** The id behind a tag, if there is one */
  async tagged(tag: string): Promise<string | undefined> {
    return this.#tags.idOf(checkName("Tag", tag));
  }

  /** Every tag with the id of its snapshot */
  async tags(): Promise<Map<string, string>> {
    return this.#tags.all();
  }

  /** Every readable snapshot that has a tag; `onInvalid` hears of the others */
  async list(opts: ListOptions = {}): Promise<Snapshot[]> {
    return this.#read([...(await this.#tags.all()).keys()], async (tag) => this.get(tag), opts);
  }

  /** Every readable snapshot, also those that are only kept because something builds on them */
  async everything(opts: ListOptions = {}): Promise<Snapshot[]> {
    return this.#read(await this.ids(), async (id) => this.byId(id), opts);
  }

  /** Of every folder, readable or not */
  async ids(): Promise<string[]> {
    return (await namesIn(this.#home.snapshots)).filter((name) => name.startsWith("sn-"));
  }

  /** Those that store only what differs from this one */
  async dependentsOf(id: string): Promise<Snapshot[]> {
    return (await this.everything()).filter(({ manifest: { memory } }) => memory.kind === "delta" && memory.base === id);
  }

  /** Gives a snapshot another tag */
  async rename(tag: string, to: string): Promise<Snapshot> {
    const snapshot = await this.get(tag);
    await this.reserve(to);
    try {
      await this.#tags.rename(tag, to);
      const manifest = { ...snapshot.manifest, tag: to };
      await this.#writeManifest(snapshot.dir, manifest);
      return this.partsIn(snapshot.dir, manifest);
    } finally {
      await this.release(to);
    }
  }

  /** Gives a complete snapshot the tag that it was made for, when its maker died just before */
  async retag(id: string, tag: string): Promise<void> {
    await this.reserve(tag);
    try {
      await this.#tags.set(tag, id);
    } finally {
      await this.release(tag);
    }
  }

  /** Takes every tag away; the data stays */
  async untag(id: string): Promise<boolean> {
    let found = false;
    for (const [tag, named] of await this.#tags.all()) {
      if (named !== id) continue;
      found = true;
      await this.#tags.remove(tag);
    }
    return found;
  }

  /** Removes a snapshot that no other one builds on, by tag or id; a damaged one too */
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
    if (!hasData && !hadTag) throw new ForkdError("NOT_FOUND", `There is no snapshot ${name}.`);
    // out of sight first: half a snapshot would look like one, and like nothing to whoever cleans up
    if (hasData) await withStaging(this.#home, async (staging) => rename(this.#dirOf(id), join(staging, "snapshot")));
  }

  async #read(names: readonly string[], read: (name: string) => Promise<Snapshot>, opts: ListOptions): Promise<Snapshot[]> {
    const snapshots: Snapshot[] = [];
    for (const name of names) {
      try {
        snapshots.push(await read(name));
      } catch (error) {
        if (!(error instanceof ForkdError)) throw error;
        // one that was removed since its name was read is no fault
        if (error.code !== "NOT_FOUND") opts.onInvalid?.(error);
      }
    }
    return snapshots;
  }

  async #writeManifest(dir: string, manifest: SnapshotManifest): Promise<void> {
    snapshotManifest.parse(manifest);
    // waiting for the disk here would protect the name of a memory image that is not yet on it
    await writeFileAtomic(join(dir, "manifest.json"), `${JSON.stringify(manifest, undefined, 2)}\n`, "quick");
  }

  #dirOf(id: string): string {
    return join(this.#home.snapshots, checkName("Snapshot id", id));
  }
}

function reasonOf(error: unknown): string {
  return error instanceof z.ZodError ? z.prettifyError(error) : messageOf(error);
}
