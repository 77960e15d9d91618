// Flat memory images: what a child maps. A base is one already; for a delta it is made once, kept, and may be thrown away.

import { rename, rm, stat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import type { Snapshot, SnapshotStore } from "../snapshot/store.ts";
import type { Warden } from "./warden.ts";

/** Unused flat images are kept up to this many bytes of disk */
const KEEP_BYTES = 4 * 1024 ** 3;

type Entry = { path: Promise<string>; uses: number; lastUsed: number };

/** A flat image in use; release it when no VM maps it any more */
export type FlatImage = { path: string; release: () => void };

export class FlatCache {
  readonly #home: Home;
  readonly #warden: Warden;
  readonly #snapshots: SnapshotStore;
  readonly #entries = new Map<string, Entry>();
  #evicting: Promise<void> = Promise.resolve();

  constructor(opts: { home: Home; warden: Warden; snapshots: SnapshotStore }) {
    this.#home = opts.home;
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

  /** Removes what an earlier process left; only right when nobody else uses this store */
  async sweep(): Promise<void> {
    for (const name of await readdir(this.#home.flat)) await rm(join(this.#home.flat, name), { force: true });
  }

  #pathOf(id: string): string {
    return join(this.#home.flat, `${id}.ram`);
  }

  async #make(snapshot: Snapshot): Promise<string> {
    const path = this.#pathOf(snapshot.manifest.id);
    const deltas: string[] = [];
    const held: FlatImage[] = [];
    try {
      const base = await this.#nearestFlat(snapshot, deltas, held);
      const temporary = `${path}.${process.pid}.tmp`;
      await this.#warden.flatten({ base, deltas, out: temporary });
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
      current = await this.#snapshots.get(current.manifest.memory.base);
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
