// Snapshots on disk: a folder per id, a small file per tag.

import { mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import type { Home } from "../home.ts";
import { writeFileAtomic } from "../util/atomic-file.ts";
import { checkName } from "../util/name.ts";
import { snapshotManifest, type SnapshotManifest } from "./manifest.ts";

/** A snapshot and where its parts lie */
export type Snapshot = {
  manifest: SnapshotManifest;
  dir: string;
  deviceState: string;
  /** the memory file of a base, or the delta file */
  memory: string;
};

export class SnapshotStore {
  readonly #home: Home;
  readonly #tags: string;

  constructor(home: Home) {
    this.#home = home;
    this.#tags = join(home.snapshots, "tags");
  }

  /** Reserves a tag; throws EXISTS when it is taken, so that two branches never write the same one */
  async reserve(tag: string): Promise<void> {
    checkName("Tag", tag);
    await mkdir(this.#tags, { recursive: true, mode: 0o700 });
    try {
      // mkdir is atomic: exactly one of two simultaneous callers succeeds
      await mkdir(join(this.#tags, `${tag}.reserved.tmp`));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      throw new ForkdError("EXISTS", `Cannot make snapshot ${tag}: another one of that name is being made.`);
    }
    if ((await this.#idOf(tag)) !== undefined) {
      await this.release(tag);
      throw new ForkdError("EXISTS", `Cannot make snapshot ${tag}: it exists already.`);
    }
  }

  async release(tag: string): Promise<void> {
    await rm(join(this.#tags, `${tag}.reserved.tmp`), { recursive: true, force: true });
  }

  /** Forgets reservations; only right when nobody else uses this store */
  async releaseAll(): Promise<void> {
    for (const name of await namesIn(this.#tags)) {
      if (name.endsWith(".reserved.tmp")) await rm(join(this.#tags, name), { recursive: true, force: true });
    }
  }

  /** Paths of the parts inside a folder, staged or final */
  partsIn(dir: string, manifest: SnapshotManifest): Snapshot {
    const memory = join(dir, manifest.memory.kind === "base" ? "memory.ram" : "memory.delta");
    return { manifest, dir, deviceState: join(dir, "device.state"), memory };
  }

  /** Makes a staged folder the snapshot of its tag: first the folder, then the tag, so that a tag never names half a thing */
  async publish(staged: string, manifest: SnapshotManifest): Promise<Snapshot> {
    snapshotManifest.parse(manifest);
    await writeFileAtomic(join(staged, "manifest.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
    const dir = join(this.#home.snapshots, checkName("Snapshot id", manifest.id));
    await rename(staged, dir);
    try {
      await writeFileAtomic(join(this.#tags, checkName("Tag", manifest.tag)), manifest.id);
    } catch (error) {
      await rm(dir, { recursive: true, force: true });
      throw error;
    }
    return this.partsIn(dir, manifest);
  }

  /** By tag or id */
  async get(name: string): Promise<Snapshot> {
    checkName("Snapshot", name);
    const id = (await this.#idOf(name)) ?? name;
    const dir = join(this.#home.snapshots, checkName("Snapshot id", id));
    let text: string;
    try {
      text = await readFile(join(dir, "manifest.json"), "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      throw new ForkdError("NOT_FOUND", `There is no snapshot ${name}.`);
    }
    try {
      return this.partsIn(dir, snapshotManifest.parse(JSON.parse(text)));
    } catch (error) {
      throw new ForkdError("SNAPSHOT_INVALID", `Cannot use snapshot ${name}: its manifest is not valid: ${messageOf(error)}.`, { cause: error });
    }
  }

  async list(): Promise<Snapshot[]> {
    const tags = (await namesIn(this.#tags)).filter((name) => !name.endsWith(".tmp"));
    return Promise.all(tags.map((tag) => this.get(tag)));
  }

  /** Removes a snapshot that no other one builds on */
  async remove(name: string): Promise<void> {
    const { manifest, dir } = await this.get(name);
    const dependents = (await this.list()).filter((other) => other.manifest.memory.kind === "delta" && other.manifest.memory.base === manifest.id);
    if (dependents.length > 0) {
      const names = dependents.map((other) => other.manifest.tag).join(", ");
      throw new ForkdError("IN_USE", `Cannot remove snapshot ${manifest.tag}: ${names} ${dependents.length === 1 ? "builds" : "build"} on it.`);
    }
    await rm(join(this.#tags, manifest.tag), { force: true });
    await rm(dir, { recursive: true, force: true });
  }

  async #idOf(tag: string): Promise<string | undefined> {
    try {
      return await readFile(join(this.#tags, tag), "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
  }
}

async function namesIn(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}
