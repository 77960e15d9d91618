// Flat memory images, which children map. A base is flat; the image of a delta is made once and cached.

import { mkdir, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import { run } from "../host/command.ts";
import { checkHugePages, isOwnFolder, makeHugeFolder } from "../host/huge-pages.ts";
import type { Snapshot, SnapshotStore } from "./store.ts";
import type { WardenSource } from "../warden/source.ts";

/** Unused flat images are kept up to this size */
const KEEP_BYTES = 4 * 1024 ** 3;

type Entry = { path: Promise<string>; isHuge: boolean; uses: number; lastUsed: number };

/** A flat image in use; release it when no VM maps it */
export type FlatImage = { path: string; release: () => void };

export class FlatCache {
  readonly #dir: string;
  readonly #hugeDir: string;
  readonly #warden: WardenSource;
  readonly #snapshots: SnapshotStore;
  readonly #entries = new Map<string, Entry>();
  #evicting: Promise<void> = Promise.resolve();

  /**
   * @param opts.dir folder used by this cache only
   * @param opts.hugeDir the same on a tmpfs with huge pages; made when it is needed
   */
  constructor(opts: { dir: string; hugeDir: string; warden: WardenSource; snapshots: SnapshotStore }) {
    this.#dir = opts.dir;
    this.#hugeDir = opts.hugeDir;
    this.#warden = opts.warden;
    this.#snapshots = opts.snapshots;
  }

  /** Throws HUGEPAGES_UNAVAILABLE if this host has no huge pages for guest memory */
  async checkHugePages(): Promise<void> {
    await checkHugePages(dirname(this.#hugeDir));
    await makeHugeFolder(this.#hugeDir);
  }

  /** The flat image of a snapshot, made on demand; concurrent callers share the work */
  async acquire(snapshot: Snapshot): Promise<FlatImage> {
    const { id, shape, memory } = snapshot.manifest;
    const isHuge = shape.hugepages === true;
    if (memory.kind === "base" && !isHuge) return { path: snapshot.memory, release: () => undefined };
    let entry = this.#entries.get(id);
    if (!entry) {
      entry = { path: this.#make(snapshot), isHuge, uses: 0, lastUsed: 0 };
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

  /** Of images without a VM */
  async unused(): Promise<{ id: string; bytes: number }[]> {
    const unused = [...this.#entries].filter(([, entry]) => entry.uses === 0);
    return Promise.all(unused.map(async ([id, entry]) => ({ id, bytes: await diskBytes(await entry.path) })));
  }

  /** Removes images without a VM, oldest first, until at most `keepBytes` remain, and all in huge pages: they take memory */
  async evict(keepBytes = KEEP_BYTES): Promise<void> {
    // in sequence: a concurrent call would use an outdated list of unused images
    this.#evicting = this.#evicting.then(async () => this.#evict(keepBytes));
    return this.#evicting;
  }

  async #evict(keepBytes: number): Promise<void> {
    const unused = [...this.#entries].filter(([, entry]) => entry.uses === 0).toSorted(([, a], [, b]) => b.lastUsed - a.lastUsed);
    let kept = 0;
    for (const [id, entry] of unused) {
      const path = await entry.path;
      if (!entry.isHuge) kept += await diskBytes(path);
      if ((!entry.isHuge && kept <= keepBytes) || entry.uses > 0 || this.#entries.get(id) !== entry) continue;
      this.#entries.delete(id);
      await rm(path, { force: true });
    }
  }

  async remove(id: string): Promise<void> {
    this.#entries.delete(id);
    for (const dir of [this.#dir, this.#hugeDir]) await rm(imageIn(dir, id), { force: true });
  }

  /** The image that a VM of an earlier process maps, or undefined when it was removed */
  async reacquire(snapshot: Snapshot): Promise<FlatImage | undefined> {
    const { id, shape, memory } = snapshot.manifest;
    const isHuge = shape.hugepages === true;
    if ((memory.kind === "delta" || isHuge) && !this.#entries.has(id)) {
      const path = this.#pathOf(snapshot);
      if ((await diskBytes(path)) === 0) return undefined;
      this.#entries.set(id, { path: Promise.resolve(path), isHuge, uses: 0, lastUsed: 0 });
    }
    return this.acquire(snapshot);
  }

  /** Removes images of an earlier process that no VM uses */
  async sweep(others: readonly string[] = []): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    const ids = [...this.#entries.keys(), ...others];
    for (const dir of [this.#dir, ...((await isOwnFolder(this.#hugeDir)) ? [this.#hugeDir] : [])]) {
      const known = new Set(ids.map((id) => imageIn(dir, id)));
      for (const name of await readdir(dir)) {
        const path = join(dir, name);
        if (name.includes(".ram") && !known.has(path)) await rm(path, { force: true });
      }
    }
  }

  #pathOf({ manifest: { id, shape } }: Snapshot): string {
    return imageIn(shape.hugepages ? this.#hugeDir : this.#dir, id);
  }

  async #make(snapshot: Snapshot): Promise<string> {
    const path = this.#pathOf(snapshot);
    const { hugepages, memoryMiB } = snapshot.manifest.shape;
    if (hugepages) await this.checkHugePages();
    const deltas: string[] = [];
    const held: FlatImage[] = [];
    try {
      const base = await this.#nearestFlat(snapshot, deltas, held);
      const temporary = `${path}.${process.pid}.tmp`;
      const warden = await this.#warden();
      await warden.flatten({ base, deltas, out: temporary });
      if (hugepages) await allocate(temporary, memoryMiB);
      await rename(temporary, path);
      return path;
    } finally {
      for (const image of held) image.release();
    }
  }

  /** Follows the chain to a flat memory and collects the deltas above it, oldest first */
  async #nearestFlat(snapshot: Snapshot, deltas: string[], held: FlatImage[]): Promise<string> {
    let current = snapshot;
    for (let depth = 0; current.manifest.memory.kind === "delta"; depth++) {
      if (depth > snapshot.manifest.depth)
        throw new ForkdError("SNAPSHOT_INVALID", `Cannot use snapshot ${snapshot.manifest.tag}: its chain has a loop.`);
      deltas.unshift(...current.deltas);
      current = await this.#snapshots.byId(current.manifest.memory.base);
      if (this.#entries.has(current.manifest.id)) break;
    }
    if (current.manifest.memory.kind === "base") return current.memory;
    const image = await this.acquire(current);
    held.push(image);
    return image.path;
  }
}

function imageIn(dir: string, id: string): string {
  return join(dir, `${id}.ram`);
}

/** Fills the holes of an image: a VMM that reads a hole on a full tmpfs would be ended by SIGBUS */
async function allocate(path: string, memoryMiB: number): Promise<void> {
  try {
    await run(["fallocate", "--length", `${memoryMiB}MiB`, path]);
  } catch (error) {
    await rm(path, { force: true });
    if (!messageOf(error).includes("No space left on device")) throw error;
    throw new ForkdError("NO_SPACE", `Cannot put ${memoryMiB} MiB of guest memory into huge pages: the tmpfs is full.`, { cause: error });
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

/** 0 for a removed file: its snapshot may be removed concurrently */
async function diskBytes(path: string): Promise<number> {
  try {
    return (await stat(path)).blocks * 512;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
}
