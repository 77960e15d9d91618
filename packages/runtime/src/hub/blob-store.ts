// Remote blobs: taken from the pack cache, or downloaded into it.

import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { hexOf } from "../util/digest.ts";
import type { Home } from "../home.ts";
import { downloadBlob } from "../oci/blob-download.ts";
import type { BlobOpts, BlobSource } from "../oci/blob-download.ts";
import { PackCache, packCacheDir } from "../pack/cache.ts";

export class BlobStore {
  readonly #cache: PackCache;
  readonly #downloads: string;
  readonly #staging: string;

  /** @param staging a folder of this pull; its files stay when the cache is cleaned */
  constructor(home: Home, staging: string) {
    this.#cache = new PackCache(home);
    this.#downloads = downloadsDir(home);
    this.#staging = staging;
  }

  async prepare(): Promise<void> {
    await this.#cache.prepare();
    await mkdir(this.#downloads, { recursive: true, mode: 0o700 });
  }

  /** The path of the verified blob */
  async get(source: BlobSource, blob: { digest: string; size: number }, opts: BlobOpts): Promise<string> {
    const kept = await this.#cache.take(blob.digest, blob.size, this.#staging);
    if (kept !== undefined) {
      opts.onBytes?.(blob.size);
      return kept;
    }
    opts.signal?.throwIfAborted();
    const hex = hexOf(blob.digest);
    const path = join(this.#staging, hex);
    await downloadBlob(this.#downloads, source, blob, path, opts);
    await this.#keep(join(this.#downloads, hex), blob.digest);
    return path;
  }

  async #keep(path: string, digest: string): Promise<void> {
    try {
      await this.#cache.keepBlob(path, digest);
    } catch (error) {
      // another pull of the same blob was faster
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
  }
}

/** Unfinished downloads are here, for the next pull */
export function downloadsDir(home: Home): string {
  return join(packCacheDir(home), "downloads");
}
