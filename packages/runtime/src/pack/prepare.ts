// Makes a pack of a snapshot: compresses what is not cached, so that every digest is known before anything is sent.

import { open } from "node:fs/promises";
import { join } from "node:path";
import { hexOf } from "../util/digest.ts";
import { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import { PLATFORM } from "../host/platform.ts";
import { openStaging } from "../host/staging.ts";
import type { ImageStore, StoredImage } from "../image/store.ts";
import type { Snapshot, SnapshotStore } from "../snapshot/store.ts";
import type { Progress } from "../util/progress.ts";
import { DEFAULT_CACHE_BYTES, PackCache } from "./cache.ts";
import { compressInto, DEFAULT_LEVEL, MAX_LEVEL, segmentsOf, Summer, type Sum } from "./compress.ts";
import { readDeltas } from "./delta-file.ts";
import { canonicalJson, contentsOf, MEDIA_TYPES, PACK_FORMAT, PACK_VERSION } from "./manifest.ts";
import type { BlobKind, PackBlob, PackLink, PackManifest } from "./manifest.ts";
import { encodeFile, encodePages, type Counted } from "./page-encode.ts";
import type { Signature, Signer } from "./signature.ts";

export const ARCHITECTURE: string = PLATFORM.name;

/** agent protocol of snapshots that do not state it */
const FIRST_PROTOCOL = 2;

/** Where packs come from and go to */
export type PackStores = { home: Home; snapshots: SnapshotStore; images: ImageStore };

export type PrepareOptions = {
  /** 1 to 19 */
  level?: number | undefined;
  sign?: Signer | undefined;
  /** ids of snapshots that the receiver has: their blobs are in the manifest but not in the pack */
  without?: ReadonlySet<string> | undefined;
  cacheBytes?: number | undefined;
  signal?: AbortSignal | undefined;
  progress?: Progress | undefined;
};

export type Pack = {
  manifest: PackManifest;
  manifestBytes: Buffer;
  signatures: Signature[];
  /** blobs to send, in the manifest's order; the files are kept until it is closed */
  blobs: { digest: string; size: number; path: string }[];
  close: () => Promise<void>;
  [Symbol.asyncDispose]: () => Promise<void>;
};

export async function preparePack(stores: PackStores, snapshot: string, opts: PrepareOptions = {}): Promise<Pack> {
  const { level = DEFAULT_LEVEL } = opts;
  if (!Number.isInteger(level) || level < 1 || level > MAX_LEVEL)
    throw new ForkdError("BAD_REQUEST", `Cannot compress at level ${level}: the levels are 1 to ${MAX_LEVEL}.`);
  const chain = await chainOf(stores.snapshots, await stores.snapshots.get(snapshot));
  const head = chain.at(-1) as Snapshot;
  const image = await stores.images.get(head.manifest.imageId);
  const cache = new PackCache(stores.home);
  await cache.prepare();
  const staging = await openStaging(stores.home);
  try {
    const packer = new Packer(cache, staging.dir, level, opts, await bytesToRead(chain, image));
    const links: PackLink[] = [];
    for (const link of chain) links.push(await packer.link(link, opts.without?.has(link.manifest.id) === true));
    const hasImage = chain.some(({ manifest: { id } }) => opts.without?.has(id));
    await packer.image(image, hasImage);
    const manifest = manifestOf(head, links, image, packer.blobs(links, image), level);
    const manifestBytes = canonicalJson(manifest);
    await cache.trim(opts.cacheBytes ?? DEFAULT_CACHE_BYTES);
    return {
      manifest,
      manifestBytes,
      signatures: opts.sign ? [opts.sign(manifestBytes)] : [],
      blobs: manifest.blobs.flatMap(({ digest, size }) => {
        const path = packer.staged.get(digest);
        return path === undefined ? [] : [{ digest, size, path }];
      }),
      close: staging.close,
      [Symbol.asyncDispose]: staging.close,
    };
  } catch (error) {
    await staging.close();
    throw error;
  }
}

/** From the base to the head */
async function chainOf(snapshots: SnapshotStore, head: Snapshot): Promise<Snapshot[]> {
  const chain = [head];
  for (let current = head; current.manifest.memory.kind === "delta";) {
    if (chain.length > head.manifest.depth)
      throw new ForkdError("SNAPSHOT_INVALID", `Cannot pack snapshot ${head.manifest.tag}: its chain has a loop.`);
    current = await snapshots.byId(current.manifest.memory.base);
    chain.unshift(current);
  }
  return chain;
}

/** The link of a snapshot, without compression, for comparison with a pack */
export async function describeLink(stores: PackStores, snapshot: Snapshot, signal?: AbortSignal): Promise<PackLink> {
  const cache = new PackCache(stores.home);
  await cache.prepare();
  const staging = await openStaging(stores.home);
  try {
    return await new Packer(cache, staging.dir, null, { signal }, 0).link(snapshot, true);
  } finally {
    await staging.close();
  }
}

type Part = { kind: BlobKind; segments: (counted: Counted) => AsyncIterable<Buffer> };

/** Makes the links of one pack and collects its blobs */
class Packer {
  readonly staged = new Map<string, string>();
  readonly #cache: PackCache;
  readonly #dir: string;
  /** null: compresses nothing, computes only the digests of the content */
  readonly #level: number | null;
  readonly #opts: PrepareOptions;
  readonly #total: number;
  readonly #packed = new Map<string, Omit<PackBlob, "kind" | "mediaType" | "contentDigest">>();
  /** a layer is in every snapshot above the one that wrote it */
  readonly #layers = new Map<string, { content: string; bytes: number; pages: number }>();
  /** contents that the receiver has */
  readonly #there = new Set<string>();
  #done = 0;
  #count = 0;

  constructor(cache: PackCache, dir: string, level: number | null, opts: PrepareOptions, total: number) {
    this.#cache = cache;
    this.#dir = dir;
    this.#level = level;
    this.#opts = opts;
    this.#total = total;
  }

  /** @param isThere the receiver has it: only its digest is needed */
  async link(snapshot: Snapshot, isThere: boolean): Promise<PackLink> {
    const { manifest } = snapshot;
    const known = await this.#cache.link(manifest.id);
    if (known && (await this.#hasAll(known, isThere))) {
      for (const layer of known.disk?.layers ?? []) this.#layers.set(layer.id, layer);
      return known;
    }
    const memory = await this.#part(memoryPart(snapshot), isThere);
    const layers = [];
    for (const { id, path } of snapshot.layers) layers.push({ id, ...(await this.#layer(id, path, isThere)) });
    const state = await this.#part({ kind: "state", segments: () => segmentsOf(snapshot.deviceState) }, isThere);
    const { pages } = memory;
    const { hugepages: _hugepages, ...shape } = manifest.shape;
    const { id, createdAt, guestKernelId, agentKey, kernels, env, network, mounts, branchedFrom, depth, disk } = manifest;
    const facts = { id, createdAt, shape, guestKernelId, agentKey, kernels, env, network, mounts, branchedFrom, depth };
    const link: PackLink = {
      ...facts,
      agentProtocol: manifest.agentProtocol ?? FIRST_PROTOCOL,
      memory:
        manifest.memory.kind === "base"
          ? { kind: "base", pages, content: memory.content.digest }
          : { kind: "delta", base: manifest.memory.base, pages, content: memory.content.digest },
      disk: disk && { sizeMiB: disk.sizeMiB, layers },
      state: { content: state.content.digest, bytes: state.content.size },
    };
    await this.#cache.keepLink(link);
    return link;
  }

  async image({ rootfsPath, manifest: { rootfs } }: StoredImage, isThere: boolean): Promise<void> {
    const content = `sha256:${rootfs.sha256}`;
    if (await this.#take(content, isThere)) return;
    const made = await this.#part({ kind: "image", segments: () => segmentsOf(rootfsPath) }, isThere);
    if (made.content.digest !== content)
      throw new ForkdError("IMAGE_INVALID", "Cannot pack the image of this snapshot: its root file system is not what it was.");
  }

  /** Each content once, in the order in which links refer to them */
  blobs(links: readonly PackLink[], { manifest: { rootfs } }: StoredImage): PackBlob[] {
    const wanted = [...links.flatMap(contentsOf), { kind: "image" as const, content: `sha256:${rootfs.sha256}` }];
    const blobs = new Map<string, PackBlob>();
    for (const { kind, content } of wanted) {
      const packed = this.#packed.get(content);
      if (packed) blobs.set(content, { kind, mediaType: MEDIA_TYPES[kind], contentDigest: content, ...packed });
    }
    return [...blobs.values()];
  }

  async #hasAll(link: PackLink, isThere: boolean): Promise<boolean> {
    if (this.#level === null) return true;
    for (const { content } of contentsOf(link)) if (!(await this.#take(content, isThere))) return false;
    return true;
  }

  /** Whether a content is cached; then it becomes part of the pack */
  async #take(content: string, isThere: boolean, report = true): Promise<boolean> {
    const isNew = !this.#packed.has(content);
    const known = this.#level === null ? undefined : await this.#cache.content(content, this.#level);
    if (!known) return false;
    if (isThere) this.#there.add(content);
    if (!this.#there.has(content) && !this.staged.has(known.digest)) {
      const path = await this.#cache.take(known.digest, known.size, this.#dir);
      if (path === undefined) return false;
      this.staged.set(known.digest, path);
    }
    this.#packed.set(content, known);
    if (isNew && report) this.#report(known.contentSize);
    return true;
  }

  async #layer(id: string, path: string, isThere: boolean): Promise<{ content: string; bytes: number; pages: number }> {
    const known = this.#layers.get(id);
    if (known && (this.#level === null || (await this.#take(known.content, isThere)))) return known;
    await using file = await open(path, "r");
    const { size: bytes } = await file.stat();
    const { content, pages } = await this.#part({ kind: "disk-layer", segments: (counted) => encodeFile(path, counted) }, isThere);
    const layer = { content: content.digest, bytes, pages };
    this.#layers.set(id, layer);
    return layer;
  }

  async #part({ segments }: Part, isThere: boolean): Promise<{ content: Sum; pages: number }> {
    const { signal } = this.#opts;
    const counted: Counted = { pages: 0 };
    if (this.#level === null) return { content: await sumOf(segments(counted), signal), pages: counted.pages };
    const path = join(this.#dir, `part-${this.#count++}`);
    const onBytes = (bytes: number): void => this.#report(bytes);
    const { content, packed } = await compressInto(path, segments(counted), { level: this.#level, signal, onBytes });
    await this.#cache.keepBlob(path, packed.digest);
    await this.#cache.keepContent(content, this.#level, packed);
    if (!(await this.#take(content.digest, isThere, false)))
      throw new ForkdError("INTERNAL", `Cannot pack: the blob ${hexOf(packed.digest)} is gone from the cache.`);
    return { content, pages: counted.pages };
  }

  #report(bytes: number): void {
    this.#done += bytes;
    this.#opts.progress?.({ step: "Packing", done: Math.min(this.#done, this.#total), total: this.#total, unit: "bytes" });
  }
}

async function sumOf(pieces: AsyncIterable<Buffer>, signal: AbortSignal | undefined): Promise<Sum> {
  const sum = new Summer();
  for await (const piece of pieces) {
    signal?.throwIfAborted();
    sum.add(piece);
  }
  return sum.sum();
}

function memoryPart(snapshot: Snapshot): Part {
  const { memory, tag } = snapshot.manifest;
  if (memory.kind === "base") return { kind: "memory", segments: (counted) => encodeFile(snapshot.memory, counted) };
  return {
    kind: "delta",
    async *segments(counted) {
      await using opened = new AsyncDisposableStack();
      const files = [];
      for (const path of snapshot.deltas) files.push(opened.use(await open(path, "r")));
      const { ramBytes, extents, source } = await readDeltas(files, tag);
      yield* encodePages(source, ramBytes, extents, "stored", counted);
    },
  };
}

function manifestOf(head: Snapshot, links: PackLink[], image: StoredImage, blobs: PackBlob[], level: number): PackManifest {
  const { engine, engineVersion, machine, cpu, vendor, features, accelerator } = head.manifest.shape;
  const { rootfs, config } = image.manifest;
  return {
    format: PACK_FORMAT,
    version: PACK_VERSION,
    head: head.manifest.id,
    // the owner of a tag is a matter of this store
    name: head.manifest.name ?? head.manifest.tag.slice(head.manifest.tag.indexOf("/") + 1),
    requires: {
      architecture: ARCHITECTURE,
      engine,
      engineVersion,
      machine,
      cpu,
      vendor,
      features,
      accelerator,
      agentProtocol: head.manifest.agentProtocol ?? FIRST_PROTOCOL,
    },
    compression: { algorithm: "zstd", level },
    image: { id: image.id, rootfs: `sha256:${rootfs.sha256}`, bytes: rootfs.bytes, config },
    links,
    blobs,
  };
}

async function bytesToRead(chain: readonly Snapshot[], image: StoredImage): Promise<number> {
  let bytes = image.manifest.rootfs.bytes;
  for (const { manifest } of chain) {
    const earlier = manifest.memory.kind === "delta" ? (manifest.memory.earlier ?? []) : [];
    bytes += [manifest.memory.bytes, ...earlier].reduce((sum, size) => sum + size, manifest.deviceStateBytes);
  }
  return bytes;
}
