// Snapshots on disk: a folder per id, a small file per tag.

import { mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
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
    // waiting for the disk here would protect the name of a memory image that is not yet on it
    await writeFileAtomic(join(staged, "manifest.json"), `${JSON.stringify(manifest, undefined, 2)}\n`, "quick");
    const dir = join(this.#home.snapshots, checkName("Snapshot id", manifest.id));
    await rename(staged, dir);
    try {
      await writeFileAtomic(join(this.#tags, checkName("Tag", manifest.tag)), manifest.id, "quick");
    } catch (error) {
      await rm(dir, { recursive: true, force: true });
      throw error;
    }
    return this.partsIn(dir, manifest);
  }

  /** By tag or id */
  async get(name: string): Promise<Snapshot> {
    const dir = this.#dirOf(await this.idOf(name));
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
      throw new ForkdError("SNAPSHOT_INVALID", `Cannot use snapshot ${name}: its manifest is not valid: ${reasonOf(error)}.`, {
        cause: error,
      });
    }
  }

  /** The id behind a tag, or the name itself; also for a snapshot that is damaged or gone */
  async idOf(name: string): Promise<string> {
    checkName("Snapshot", name);
    return (await this.#idOf(name)) ?? name;
  }

  /** Every readable snapshot; `onInvalid` hears of the others */
  async list(opts: { onInvalid?: (error: ForkdError) => void } = {}): Promise<Snapshot[]> {
    const snapshots: Snapshot[] = [];
    for (const tag of await this.#tagNames()) {
      try {
        snapshots.push(await this.get(tag));
      } catch (error) {
        if (!(error instanceof ForkdError)) throw error;
        // one that was removed since its tag was read is no fault
        if (error.code !== "NOT_FOUND") opts.onInvalid?.(error);
      }
    }
    return snapshots;
  }

  /** Removes a snapshot that no other one builds on; a damaged one too */
  async remove(name: string): Promise<void> {
    const id = await this.idOf(name);
    const dependents = (await this.list()).filter((other) => other.manifest.memory.kind === "delta" && other.manifest.memory.base === id);
    if (dependents.length > 0) {
      const names = dependents.map((other) => other.manifest.tag).join(", ");
      throw new ForkdError("IN_USE", `Cannot remove snapshot ${name}: ${names} ${dependents.length === 1 ? "builds" : "build"} on it.`);
    }
    let found = (await namesIn(this.#home.snapshots)).includes(id);
    for (const tag of await this.#tagNames()) {
      if ((await this.#idOf(tag)) !== id) continue;
      found = true;
      await rm(join(this.#tags, tag), { force: true });
    }
    if (!found) throw new ForkdError("NOT_FOUND", `There is no snapshot ${name}.`);
    await rm(this.#dirOf(id), { recursive: true, force: true });
  }

  #dirOf(id: string): string {
    return join(this.#home.snapshots, checkName("Snapshot id", id));
  }

  async #tagNames(): Promise<string[]> {
    return (await namesIn(this.#tags)).filter((name) => !name.endsWith(".tmp"));
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

function reasonOf(error: unknown): string {
  return error instanceof z.ZodError ? z.prettifyError(error) : messageOf(error);
}

async function namesIn(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}
