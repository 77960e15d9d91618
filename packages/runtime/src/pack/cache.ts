// Cache of compressed blobs by digest, and an index from content to blob. All of it can be made again.

import { link, mkdir, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
import { hexOf } from "../util/digest.ts";
import { statIfThere } from "../util/stat-if-there.ts";
import type { Home } from "../home.ts";
import { namesIn } from "../util/names-in.ts";
import { writeFileAtomic } from "../util/atomic-file.ts";
import type { Sum } from "./compress.ts";
import { packLink, type PackLink } from "./manifest.ts";

/** Beyond this many bytes the least recently used blobs are removed */
export const DEFAULT_CACHE_BYTES: number = 4 * 1024 ** 3;

const packedContent = z.strictObject({ digest: z.string(), size: z.int(), contentSize: z.int() });
/** The blob of a content at a compression level */
export type PackedContent = z.infer<typeof packedContent>;

export class PackCache {
  readonly #blobs: string;
  readonly #contents: string;
  readonly #links: string;

  constructor(home: Home) {
    const dir = packCacheDir(home);
    this.#blobs = join(dir, "blobs");
    this.#contents = join(dir, "contents");
    this.#links = join(dir, "links");
  }

  async prepare(): Promise<void> {
    for (const dir of [this.#blobs, this.#contents, this.#links]) await mkdir(dir, { recursive: true, mode: 0o700 });
  }

  /** Facts about a snapshot that was packed or unpacked here */
  async link(id: string): Promise<PackLink | undefined> {
    return readJson(join(this.#links, `${id}.json`), packLink);
  }

  async keepLink(one: PackLink): Promise<void> {
    await writeFileAtomic(join(this.#links, `${one.id}.json`), JSON.stringify(one), "quick");
  }

  async forgetLink(id: string): Promise<void> {
    await rm(join(this.#links, `${id}.json`), { force: true });
  }

  async content(digest: string, level: number): Promise<PackedContent | undefined> {
    return readJson(this.#contentPath(digest, level), packedContent);
  }

  async keepContent(content: Sum, level: number, packed: Sum): Promise<void> {
    const value: PackedContent = { digest: packed.digest, size: packed.size, contentSize: content.size };
    await writeFileAtomic(this.#contentPath(content.digest, level), JSON.stringify(value), "quick");
  }

  /** Moves a finished file into the cache */
  async keepBlob(path: string, digest: string): Promise<void> {
    await rename(path, this.#blobPath(digest));
  }

  /** Hard-links the blob into a folder, where it stays when the cache is cleaned; undefined: not cached */
  async take(digest: string, size: number, dir: string): Promise<string | undefined> {
    const path = this.#blobPath(digest);
    const own = join(dir, hexOf(digest));
    try {
      await link(path, own);
      const now = new Date();
      await utimes(path, now, now);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "EEXIST") return own;
      if (code === "ENOENT") return undefined;
      throw error;
    }
    if ((await stat(own)).size === size) return own;
    await rm(own);
    await rm(path, { force: true });
    return undefined;
  }

  /** Blobs, most recently used first */
  async blobs(): Promise<{ digest: string; bytes: number; usedMs: number }[]> {
    const found = [];
    for (const name of await namesIn(this.#blobs)) {
      const file = await statIfThere(join(this.#blobs, name));
      if (file) found.push({ digest: `sha256:${name}`, bytes: file.blocks * 512, usedMs: file.mtimeMs });
    }
    return found.toSorted((a, b) => b.usedMs - a.usedMs);
  }

  /** Removes the least recently used blobs until at most this many bytes remain; returns the removed ones, or those to remove */
  async trim(keepBytes: number, opts: { dryRun?: boolean } = {}): Promise<{ digest: string; bytes: number }[]> {
    const gone = [];
    let kept = 0;
    for (const { digest, bytes } of await this.blobs()) {
      kept += bytes;
      if (kept <= keepBytes) continue;
      gone.push({ digest, bytes });
      if (!opts.dryRun) await rm(this.#blobPath(digest), { force: true });
    }
    return gone;
  }

  /** Removes entries of removed snapshots, and contents without a blob */
  async sweep(snapshots: ReadonlySet<string>): Promise<void> {
    const contents = new Set<string>();
    for (const name of await namesIn(this.#links)) {
      const id = name.replace(/\.json$/, "");
      if (!snapshots.has(id)) await rm(join(this.#links, name), { force: true });
      else for (const content of linkContents(await this.link(id))) contents.add(hexOf(content));
    }
    const blobs = new Set(await namesIn(this.#blobs));
    for (const name of await namesIn(this.#contents)) {
      const path = join(this.#contents, name);
      const known = await readJson(path, packedContent);
      if (!known || (!blobs.has(hexOf(known.digest)) && !contents.has(name.slice(0, 64)))) await rm(path, { force: true });
    }
  }

  #blobPath(digest: string): string {
    return join(this.#blobs, hexOf(digest));
  }

  #contentPath(digest: string, level: number): string {
    return join(this.#contents, `${hexOf(digest)}-${level}.json`);
  }
}

export function packCacheDir(home: Home): string {
  return join(home.cache, "packs");
}

function linkContents(one: PackLink | undefined): string[] {
  return one ? [one.memory.content, one.state.content, ...(one.disk?.layers.map(({ content }) => content) ?? [])] : [];
}

/** An unreadable entry counts as missing: it can be made again */
async function readJson<T>(path: string, schema: z.ZodType<T>): Promise<T | undefined> {
  try {
    return schema.parse(JSON.parse(await readFile(path, "utf8")));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof z.ZodError || (error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
