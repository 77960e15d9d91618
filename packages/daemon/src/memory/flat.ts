// Flat memory images: what a child maps. A base is one already; for a delta it is made once, kept, and may be thrown away.

import { mkdir, readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";
import type { Snapshot, SnapshotStore } from "../snapshot/store.ts";
import type { WardenSource } from "./warden-source.ts";

/** Unused flat images are kept up to this many bytes of disk */
const KEEP_BYTES = 4 * 1024 ** 3;

type Entry = { path: Promise<string>; uses: number; lastUsed: number };

/** A flat image in use; release it when no VM maps it any more */
export type FlatImage = { path: string; release: () => void };

export class FlatCache {
  readonly #dir: string;
  readonly #warden: WardenSource;
  readonly #snapshots: SnapshotStore;
  readonly #entries = new Map<string, Entry>();
  #evicting: Promise<void> = Promise.resolve();

  /** @param opts.dir folder of nobody else */
  constructor(opts: { dir: string; warden: WardenSource; snapshots: SnapshotStore }) {
    this.#dir = opts.dir;
    this.#warden = opts.warden;
    this.#snapshots = opts.snapshots;
  }

  /** The flat image of a snapshot, made if need be; two callers share the work */
  async acquire(snapshot: Snapshot): Promise<FlatImage> {
    if (snapshot.manifest.memory.kind === "base") return { path: snapshot.memory, release: () => undefined };
    const { id } = snapshot.manifest;
    let entry = this.#entries.get(id);
    if (!entry) {
      entry = { path: this.#make(snapshot), uses: 0, lastUsed: 0 };
      this.#entries.set(id, entry);
    }
    entry.uses++;
    try {
      return { path: await entry.path, release: releaseOnce(entry) };
    } catch (error) {
      if (this.#entries.get(id) === entry) this.#entries.delete(id);
      throw error;
    }
  }

  /** Of images that no VM uses */
  async unused(): Promise<{ id: string; bytes: number }[]> {
    const unused = [...this.#entries].filter(([, entry]) => entry.uses === 0);
    return Promise.all(unused.map(async ([id, entry]) => ({ id, bytes: await diskBytes(await entry.path) })));
  }

  /** Removes images that no VM uses, oldest first, until at most `keepBytes` of them remain */
  async evict(keepBytes = KEEP_BYTES): Promise<void> {
    // one at a time: another one's view of what is unused would be out of date
    this.#evicting = this.#evicting.then(async () => this.#evict(keepBytes));
    return this.#evicting;
  }

  async #evict(keepBytes: number): Promise<void> {
    const unused = [...this.#entries].filter(([, entry]) => entry.uses === 0).toSorted(([, a], [, b]) => b.lastUsed - a.lastUsed);
    let kept = 0;
    for (const [id, entry] of unused) {
      const path = await entry.path;
      kept += await diskBytes(path);
      if (kept <= keepBytes || entry.uses > 0 || this.#entries.get(id) !== entry) continue;
      this.#entries.delete(id);
      await rm(path, { force: true });
    }
  }

  async remove(id: string): Promise<void> {
    this.#entries.delete(id);
    await rm(this.#pathOf(id), { force: true });
  }

  /** The image that a VM of an earlier process still maps, or undefined when it is gone */
  async reacquire(snapshot: Snapshot): Promise<FlatImage | undefined> {
    const { id, memory } = snapshot.manifest;
    if (memory.kind === "delta" && !this.#entries.has(id)) {
      const path = this.#pathOf(id);
      if ((await diskBytes(path)) === 0) return undefined;
      this.#entries.set(id, { path: Promise.resolve(path), uses: 0, lastUsed: 0 });
    }
    return this.acquire(snapshot);
  }

  /** Removes what an earlier process left and no VM uses */
  async sweep(): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    const known = new Set([...this.#entries.keys()].map((id) => this.#pathOf(id)));
    for (const name of await readdir(this.#dir)) {
      const path = join(this.#dir, name);
      if (name.includes(".ram") && !known.has(path)) await rm(path, { force: true });
    }
  }

  #pathOf(id: string): string {
    return join(this.#dir, `${id}.ram`);
  }

  async #make(snapshot: Snapshot): Promise<string> {
    const path = this.#pathOf(snapshot.manifest.id);
    const deltas: string[] = [];
    const held: FlatImage[] = [];
    try {
      const base = await this.#nearestFlat(snapshot, deltas, held);
      const temporary = `${path}.${process.pid}.tmp`;
      const warden = await this.#warden();
      await warden.flatten({ base, deltas, out: temporary });
      await rename(temporary, path);
      return path;
    } finally {
      for (const image of held) image.release();
    }
  }

  /** Walks down the chain to a memory that is flat already, collecting the deltas above it, oldest first */
  async #nearestFlat(snapshot: Snapshot, deltas: string[], held: FlatImage[]): Promise<string> {
    let current = snapshot;
    for (let depth = 0; current.manifest.memory.kind === "delta"; depth++) {
      if (depth > snapshot.manifest.depth)
        throw new ForkdError("SNAPSHOT_INVALID", `Cannot use snapshot ${snapshot.manifest.tag}: its chain has a loop.`);
      deltas.unshift(current.memory);
      current = await this.#snapshots.byId(current.manifest.memory.base);
      if (this.#entries.has(current.manifest.id)) break;
    }
    const image = await this.acquire(current);
    held.push(image);
    return image.path;
  }
}

function releaseOnce(entry: Entry): () => void {
  let released = false;
  return () => {
    if (released) return;
    released = true;
    entry.uses--;
    entry.lastUsed = Date.now();
  };
}

/** 0 for a file that is gone: its snapshot may be removed at the same time */
async function diskBytes(path: string): Promise<number> {
  try {
    return (await stat(path)).blocks * 512;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
}
