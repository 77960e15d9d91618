// Images on disk: content-addressed folders, and names that point to them.

import { link, mkdir, readFile, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import { hexOf } from "../util/digest.ts";
import { ForkdError, messageOf } from "../errors.ts";
import type { Home } from "../home.ts";
import { writeFileAtomic } from "../util/atomic-file.ts";
import { sha256File } from "../util/hash-file.ts";
import { checkQualifiedName, fileOf, nameOf } from "../util/name.ts";
import { namesIn } from "../util/names-in.ts";
import { notFound } from "../util/not-found.ts";
import { syncPath, syncTree } from "../util/sync-path.ts";
import { ImageManifest, imageId } from "./manifest.ts";
import type { ImageConfig, ImageSource } from "./manifest.ts";
import { PLATFORM } from "../host/platform.ts";
import { withStaging } from "../host/staging.ts";
import { schemaProblem } from "../util/schema-problem.ts";

const HEX_PREFIX = /^(sha256:)?([0-9a-f]{4,64})$/;

export type StoredImage = {
  id: string;
  names: string[];
  manifest: ImageManifest;
  rootfsPath: string;
};

export type NewImage = {
  /** file in a staging folder of the same store; it is moved into the store */
  rootfsTmpPath: string;
  name: string;
  config: ImageConfig;
  source: ImageSource;
  signal?: AbortSignal | undefined;
};

export type RemoveOpts = {
  /** whether a snapshot or sandbox still needs the image's data */
  inUse?: (id: string) => boolean | Promise<boolean>;
};

export class ImageStore {
  readonly #home: Home;
  readonly #names: string;

  constructor(home: Home) {
    this.#home = home;
    this.#names = join(home.images, "names");
  }

  /** Every readable image, by name; `onInvalid` is called for the others */
  async list(opts: { onInvalid?: (error: ForkdError) => void } = {}): Promise<StoredImage[]> {
    const names = await this.#readNames();
    const images: StoredImage[] = [];
    for (const hex of await this.#folders()) {
      try {
        images.push(await this.#load(hex, names));
      } catch (error) {
        if (!(error instanceof ForkdError)) throw error;
        opts.onInvalid?.(error);
      }
    }
    return images.toSorted((a, b) => (a.names[0] ?? a.id).localeCompare(b.names[0] ?? b.id));
  }

  /** By name, id, or an unambiguous prefix of the id (4 digits or more) */
  async get(nameOrIdPrefix: string): Promise<StoredImage> {
    const names = await this.#readNames();
    return this.#load(await this.#resolve(nameOrIdPrefix, names), names);
  }

  /** By exact name */
  async find(name: string): Promise<StoredImage | undefined> {
    const names = await this.#readNames();
    const hex = names.get(checkQualifiedName("Image name", name));
    return hex === undefined ? undefined : this.#load(hex, names);
  }

  /** Moves a finished root file system into the store and sets the name to it, replacing an earlier image */
  async add(image: NewImage): Promise<StoredImage> {
    checkQualifiedName("Image name", image.name);
    const manifest = await this.#manifestOf(image);
    await mkdir(this.#names, { recursive: true, mode: 0o700 });
    // Twice at most: another process may remove the data between publishing and naming.
    for (let attempt = 0; attempt < 2; attempt++) {
      await this.#publish(image.rootfsTmpPath, manifest);
      await this.tag(image.name, manifest.id);
      if (await this.#exists(hexOf(manifest.id))) break;
    }
    await rm(image.rootfsTmpPath, { force: true });
    return this.get(image.name);
  }

  /** Stores an image without a name; it is kept as long as a snapshot needs it */
  async place(image: Omit<NewImage, "name">): Promise<StoredImage> {
    const manifest = await this.#manifestOf(image);
    await this.#publish(image.rootfsTmpPath, manifest);
    await rm(image.rootfsTmpPath, { force: true });
    return this.get(manifest.id);
  }

  async #manifestOf(image: Omit<NewImage, "name">): Promise<ImageManifest> {
    const { hex: sha256, bytes } = await sha256File(image.rootfsTmpPath, image.signal);
    const manifest = ImageManifest.parse({
      version: 1,
      id: imageId(sha256, image.config),
      created_at: new Date().toISOString(),
      architecture: PLATFORM.packages,
      rootfs: { bytes, sha256 },
      config: image.config,
      source: image.source,
    });
    image.signal?.throwIfAborted();
    return manifest;
  }

  /** Points a name to an image */
  async tag(name: string, id: string): Promise<void> {
    const isNew = (await mkdir(this.#names, { recursive: true, mode: 0o700 })) !== undefined;
    if (isNew) await syncPath(this.#home.images);
    await writeFileAtomic(join(this.#names, fileOf(checkQualifiedName("Image name", name))), `${id}\n`);
  }

  /** A name: removes it, and the data with the last name. An id: removes all its names and the data */
  async remove(nameOrId: string, opts: RemoveOpts = {}): Promise<{ id: string; untagged: string[]; deleted: boolean }> {
    const names = await this.#readNames();
    const named = names.get(nameOrId);
    const hex = await this.#resolve(nameOrId, names);
    const id = `sha256:${hex}`;
    const all = namesOf(names, hex);
    const untagged = named === undefined ? all : [nameOrId];
    const deleted = untagged.length === all.length;
    if (deleted && (await opts.inUse?.(id))) {
      throw new ForkdError("IN_USE", `Cannot remove image ${nameOrId}: snapshots still need its data.`, {
        hint: "Remove the snapshots made from it first.",
      });
    }
    for (const name of untagged) await rm(join(this.#names, fileOf(name)), { force: true });
    // after a power cut no name may exist without its data
    if (untagged.length > 0) await syncPath(this.#names);
    if (deleted) await this.#deleteData(hex);
    return { id, untagged, deleted };
  }

  async #resolve(nameOrIdPrefix: string, names: ReadonlyMap<string, string>): Promise<string> {
    const named = names.get(nameOrIdPrefix);
    if (named !== undefined) return named;
    const prefix = HEX_PREFIX.exec(nameOrIdPrefix)?.[2];
    const matches = prefix === undefined ? [] : (await this.#folders()).filter((hex) => hex.startsWith(prefix));
    if (matches.length > 1)
      throw new ForkdError("BAD_REQUEST", `${nameOrIdPrefix} is the beginning of ${matches.length} image ids.`, {
        hint: "Give more digits.",
      });
    const hex = matches[0];
    if (hex === undefined) throw notFound("image", nameOrIdPrefix, names.keys());
    return hex;
  }

  async #publish(rootfs: string, manifest: ImageManifest): Promise<void> {
    const hex = hexOf(manifest.id);
    const target = join(this.#home.images, hex);
    await withStaging(this.#home, async (staging) => {
      const out = join(staging, "out");
      await mkdir(out, { mode: 0o700 });
      await link(rootfs, join(out, "rootfs.squashfs"));
      await writeFileAtomic(join(out, "manifest.json"), `${JSON.stringify(manifest, undefined, 2)}\n`, "quick");
      // Sync before the rename: an image in its final place is always on disk.
      await syncTree(out);
      try {
        await rename(out, target);
      } catch (error) {
        const code = (error as NodeJS.ErrnoException).code;
        if (code !== "ENOTEMPTY" && code !== "EEXIST") throw error;
        // The same content exists: only its origin may have changed. An invalid one is replaced.
        if (await this.#exists(hex)) {
          await rename(join(out, "manifest.json"), join(target, "manifest.json"));
          await syncPath(target);
        } else {
          await rename(target, join(staging, "replaced"));
          await rename(out, target);
        }
      }
      await syncPath(dirname(target));
    });
  }

  async #deleteData(hex: string): Promise<void> {
    await withStaging(this.#home, async (staging) => {
      // Renamed first, so that readers never see an incomplete image.
      try {
        await rename(join(this.#home.images, hex), join(staging, "deleted"));
        // Sync before its files are removed: a power cut must not bring back a folder without them.
        await syncPath(this.#home.images);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      }
    });
  }

  async #exists(hex: string): Promise<boolean> {
    try {
      await this.#load(hex, new Map());
      return true;
    } catch (error) {
      if (error instanceof ForkdError) return false;
      throw error;
    }
  }

  async #load(hex: string, names: ReadonlyMap<string, string>): Promise<StoredImage> {
    const dir = join(this.#home.images, hex);
    const id = `sha256:${hex}`;
    const rootfsPath = join(dir, "rootfs.squashfs");
    try {
      const manifest = ImageManifest.parse(JSON.parse(await readFile(join(dir, "manifest.json"), "utf8")));
      const { size } = await stat(rootfsPath);
      if (manifest.id !== id) throw invalid(id, `its manifest says it is ${manifest.id}`);
      if (size !== manifest.rootfs.bytes) throw invalid(id, `its root file system has ${size} bytes instead of ${manifest.rootfs.bytes}`);
      return { id, names: namesOf(names, hex), manifest, rootfsPath };
    } catch (error) {
      if (error instanceof ForkdError) throw error;
      if (error instanceof z.ZodError) throw invalid(id, schemaProblem(error), error);
      throw invalid(id, messageOf(error), error);
    }
  }

  async #folders(): Promise<string[]> {
    return (await namesIn(this.#home.images)).filter((name) => /^[0-9a-f]{64}$/.test(name));
  }

  async #readNames(): Promise<Map<string, string>> {
    const names = new Map<string, string>();
    for (const name of await namesIn(this.#names)) {
      if (name.endsWith(".tmp")) continue;
      let content: string;
      try {
        content = await readFile(join(this.#names, name), "utf8");
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === "ENOENT") continue;
        throw error;
      }
      names.set(nameOf(name), hexOf(content.trim()));
    }
    return names;
  }
}

function namesOf(names: ReadonlyMap<string, string>, hex: string): string[] {
  return [...names]
    .filter(([, target]) => target === hex)
    .map(([name]) => name)
    .toSorted();
}

function invalid(id: string, why: string, cause?: unknown): ForkdError {
  return new ForkdError("IMAGE_INVALID", `Image ${id.slice(0, 19)} is damaged: ${why}.`, {
    hint: "Remove it with 'forkd image rm' and make it again.",
    cause,
  });
}
