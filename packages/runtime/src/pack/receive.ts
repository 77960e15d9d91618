// Makes snapshots of a pack: everything is checked and staged first, then published together.

import { mkdir, open, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { layerFile, linkLayers, type Layer } from "../disk/layer.ts";
import { checkOverlay } from "../disk/overlay.ts";
import { ForkdError } from "../errors.ts";
import { withStaging } from "../host/staging.ts";
import { NO_NETWORK, type NetworkPolicy } from "../egress/policy.ts";
import { SNAPSHOT_VERSION, type SnapshotManifest } from "../snapshot/manifest.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { checkName } from "../util/name.ts";
import type { Progress } from "../util/progress.ts";
import { PackCache } from "./cache.ts";
import { decompress, writeFailure } from "./compress.ts";
import { checkFit, type PackHost } from "./fit.ts";
import { canonicalJson, contentsOf, headOf, packInvalid, parsePackManifest } from "./manifest.ts";
import type { BlobKind, PackBlob, PackLink, PackManifest } from "./manifest.ts";
import { decodeDelta, decodeFile } from "./page-decode.ts";
import { PAGE } from "./page-format.ts";
import { describeLink, type PackStores } from "./prepare.ts";
import { checkTrust, type Signature, type Trust } from "./signature.ts";

const MIB = 1024 * 1024;

/** Source of a pack */
export type PackSource = {
  manifestBytes: Buffer;
  signatures: readonly Signature[];
  /** called before the first blob is read, with all blobs in the order of reading */
  want?: (blobs: readonly { digest: string; size: number }[]) => void;
  /** Path of a file with the verified compressed bytes; it may be removed when the next blob is requested */
  blob: (digest: string, size: number, signal: AbortSignal) => Promise<string>;
  /** called after the last blob, before anything is used; throws when the rest of the pack is invalid */
  done?: () => Promise<void>;
};

export type ReceiveOptions = {
  /** default: the name in the pack */
  tag?: string | undefined;
  trust: Trust;
  host: PackHost;
  /** the tag to store for a name; default: the name */
  tagOf?: ((name: string) => string) | undefined;
  /** whether a tag is the receiver's own; default: all are. A snapshot that only others have is not shown by its tags */
  isOwn?: ((tag: string) => boolean) | undefined;
  /** moves the tag from the snapshot that has it */
  force?: boolean | undefined;
  /** bytes to leave free on the disk */
  minFreeBytes?: number | undefined;
  /** network policy of a new snapshot's forks, from the policy in its pack and the known key that signed it; default: none */
  networkOf?: ((offered: NetworkPolicy, signedBy: string | null) => NetworkPolicy) | undefined;
  signal: AbortSignal;
  progress?: Progress | undefined;
};

export type Received = {
  tag: string;
  head: Snapshot;
  /** ids of new snapshots, the head last; empty when all existed */
  snapshots: string[];
  /** the snapshot that had the tag before */
  replaced: string | null;
  /** id of the known key that signed it */
  signedBy: string | null;
  isSigned: boolean;
  /** only others have the snapshot: nothing was stored, and the tag is free */
  isForeign: boolean;
  /** network policy of its forks in the pack */
  offered: NetworkPolicy;
};

export async function receivePack(stores: PackStores, source: PackSource, opts: ReceiveOptions): Promise<Received> {
  const manifest = parsePackManifest(source.manifestBytes);
  const signedBy = checkTrust(source.manifestBytes, source.signatures, opts.trust);
  await checkFit(manifest, opts.host);
  const here = await linksHere(stores, manifest, opts);
  const present = here.get(manifest.head);
  const { tag, isForeign } = await tagFor(stores, manifest, present, opts);
  const facts = { tag, signedBy, isForeign, isSigned: source.signatures.length > 0, offered: headOf(manifest).network };
  if (present && isForeign) {
    await source.done?.();
    return { ...facts, head: present, snapshots: [], replaced: null };
  }
  const named = await stores.snapshots.tagged(tag);
  if (present && named === manifest.head) {
    await source.done?.();
    return { ...facts, head: await stores.snapshots.get(tag), snapshots: [], replaced: null };
  }
  await stores.snapshots.reserve(tag, { replace: opts.force });
  try {
    const snapshots = await withStaging(stores.home, async (staging) =>
      new Receiver(stores, manifest, here, { staging, tag, signedBy }).run(source, opts),
    );
    return { ...facts, head: await stores.snapshots.get(tag), snapshots, replaced: named ?? null };
  } finally {
    await stores.snapshots.release(tag);
  }
}

/** Its snapshots that exist here, by id; throws EXISTS when one has the same id and other content */
async function linksHere(
  stores: PackStores,
  { links }: PackManifest,
  { signal, isOwn = () => true }: Pick<ReceiveOptions, "signal" | "isOwn">,
): Promise<Map<string, Snapshot>> {
  const ids = new Set(await stores.snapshots.ids());
  const here = new Map<string, Snapshot>();
  for (const link of links) {
    if (!ids.has(link.id)) continue;
    const snapshot = await stores.snapshots.byId(link.id);
    const own = await describeLink(stores, snapshot, signal);
    // the policy of the same snapshot may have been dropped here
    if (!canonicalJson({ ...own, network: undefined }).equals(canonicalJson({ ...link, network: undefined })))
      throw new ForkdError("EXISTS", `Cannot unpack ${link.id}: there is another snapshot with this id here${shownTag(snapshot, isOwn)}.`, {
        hint: "Remove the one that is here first, if the one in the pack is wanted.",
      });
    here.set(link.id, snapshot);
  }
  return here;
}

function shownTag({ manifest: { tag } }: Snapshot, isOwn: (tag: string) => boolean): string {
  return isOwn(tag) ? ` (${bare(tag)})` : "";
}

/** An existing snapshot keeps its tag: unpacking it again adds no second one */
async function tagFor(
  stores: PackStores,
  manifest: PackManifest,
  present: Snapshot | undefined,
  opts: ReceiveOptions,
): Promise<{ tag: string; isForeign: boolean }> {
  const { tagOf = (name) => name, isOwn = () => true } = opts;
  const all = [...(await stores.snapshots.tags())].filter(([, id]) => id === manifest.head).map(([tag]) => tag);
  const wanted = tagOf(checkName("Tag", opts.tag ?? manifest.name));
  const tags = all.filter(isOwn);
  const [first] = tags;
  if (present && first !== undefined) {
    if (tags.includes(wanted)) return { tag: wanted, isForeign: false };
    if (opts.tag === undefined) return { tag: first, isForeign: false };
    throw new ForkdError("EXISTS", `Cannot unpack this as ${opts.tag}: it is here already, as ${bare(first)}.`, {
      hint: `Use ${bare(first)}, or give it another name with 'forkd rename'.`,
    });
  }
  return { tag: wanted, isForeign: present !== undefined && all.length > 0 };
}

/** Without its owner */
function bare(tag: string): string {
  return tag.slice(tag.indexOf("/") + 1);
}

/** Destinations of a blob's content; several when two snapshots share it */
type Target = { kind: BlobKind; path: string; bytes: number; pages: number };

class Receiver {
  readonly #stores: PackStores;
  readonly #manifest: PackManifest;
  readonly #here: ReadonlyMap<string, Snapshot>;
  readonly #staging: string;
  readonly #tag: string;
  readonly #signedBy: string | null;
  /** by content */
  readonly #targets = new Map<string, Target[]>();
  /** path of each layer, by id */
  readonly #layers = new Map<string, Layer>();
  /** folders of new snapshots, by id */
  readonly #networks = new Map<string, NetworkPolicy>();
  readonly #newOverlays: { path: string; sizeMiB: number }[] = [];

  constructor(
    stores: PackStores,
    manifest: PackManifest,
    here: ReadonlyMap<string, Snapshot>,
    { staging, tag, signedBy }: { staging: string; tag: string; signedBy: string | null },
  ) {
    this.#stores = stores;
    this.#manifest = manifest;
    this.#here = here;
    this.#staging = staging;
    this.#tag = tag;
    this.#signedBy = signedBy;
  }

  async run(source: PackSource, opts: ReceiveOptions): Promise<string[]> {
    const absent = this.#manifest.links.filter(({ id }) => !this.#here.has(id));
    for (const { id, network } of absent) this.#networks.set(id, opts.networkOf?.(network, this.#signedBy) ?? NO_NETWORK);
    for (const { layers } of this.#here.values()) for (const layer of layers) this.#layers.set(layer.id, layer);
    await mkdir(join(this.#staging, "layers"), { mode: 0o700 });
    for (const link of absent) await this.#plan(link);
    const image = await this.#planImage();
    const blobs = this.#manifest.blobs.filter(({ contentDigest }) => this.#targets.has(contentDigest));
    await this.#checkSpace(opts.minFreeBytes ?? 0);
    source.want?.(blobs.map(({ digest, size }) => ({ digest, size })));
    await this.#unpackAll(blobs, source, opts);
    await source.done?.();
    for (const { path, sizeMiB } of this.#newOverlays) await checkOverlay(path, sizeMiB);
    for (const link of absent) await this.#addLayers(link);
    opts.signal.throwIfAborted();
    await this.#publish(absent, image);
    return absent.map(({ id }) => id);
  }

  async #plan(link: PackLink): Promise<void> {
    const { memory, state, disk, shape } = link;
    const dir = this.#dirOf(link);
    await mkdir(dir, { mode: 0o700 });
    const kind = memory.kind === "base" ? "memory" : "delta";
    const name = memory.kind === "base" ? "memory.ram" : "memory.delta";
    this.#aim(memory.content, { kind, path: join(dir, name), bytes: shape.memoryMiB * MIB, pages: memory.pages });
    this.#aim(state.content, { kind: "state", path: join(dir, "device.state"), bytes: state.bytes, pages: Math.ceil(state.bytes / PAGE) });
    for (const [at, { id, content, bytes, pages }] of (disk?.layers ?? []).entries()) {
      if (this.#layers.has(id)) continue;
      const layer = { id, format: at === 0 ? "raw" : "qcow2" } as const;
      const path = join(this.#staging, "layers", layerFile(layer));
      const sizeMiB = disk?.sizeMiB ?? 0;
      if (at === 0 && bytes !== sizeMiB * MIB) throw packInvalid(`the disk of ${link.id} has ${bytes} bytes instead of ${sizeMiB} MiB`);
      if (at > 0) this.#newOverlays.push({ path, sizeMiB });
      this.#layers.set(id, { ...layer, path });
      this.#aim(content, { kind: "disk-layer", path, bytes, pages });
    }
  }

  /** Its future path; undefined: it exists */
  async #planImage(): Promise<string | undefined> {
    const { id, rootfs, bytes } = this.#manifest.image;
    if (await this.#hasImage(id)) return undefined;
    const path = join(this.#staging, "rootfs.squashfs");
    this.#aim(rootfs, { kind: "image", path, bytes, pages: Math.ceil(bytes / PAGE) });
    return path;
  }

  #aim(content: string, target: Target): void {
    this.#targets.set(content, [...(this.#targets.get(content) ?? []), target]);
  }

  async #checkSpace(minFreeBytes: number): Promise<void> {
    const needed = [...this.#targets.values()].flat().reduce((sum, { pages }) => sum + pages * PAGE, 0);
    const { bavail, bsize } = await statfs(this.#staging);
    const free = Math.max(0, bavail * bsize - minFreeBytes);
    if (needed > free)
      throw new ForkdError("NO_SPACE", `Cannot unpack: it needs ${needed} bytes, and ${free} are free for it.`, {
        details: { needed_bytes: needed, free_bytes: free },
      });
  }

  async #unpackAll(blobs: readonly PackBlob[], source: PackSource, { signal, progress }: ReceiveOptions): Promise<void> {
    const total = blobs.reduce((sum, { contentSize }) => sum + contentSize, 0);
    let done = 0;
    for (const blob of blobs) {
      const path = await source.blob(blob.digest, blob.size, signal);
      const stated = { digest: blob.contentDigest, size: blob.contentSize };
      for (const [at, target] of (this.#targets.get(blob.contentDigest) ?? []).entries()) {
        const onBytes = (bytes: number): void => {
          if (at === 0) done += bytes;
          progress?.({ step: "Unpacking", done, total, unit: "bytes" });
        };
        await unpackBlob(decompress(path, stated, { signal, onBytes }), target);
      }
    }
  }

  /** Every snapshot has all layers of its disk in its folder */
  async #addLayers(link: PackLink): Promise<void> {
    const layers = link.disk?.layers.map(({ id }) => this.#layers.get(id)).filter((layer) => layer !== undefined) ?? [];
    await linkLayers(layers, this.#dirOf(link));
  }

  /** Publishes the head first: from then on its bases are in use, and without its tag it is not visible */
  async #publish(absent: readonly PackLink[], image: string | undefined): Promise<void> {
    const { snapshots, images } = this.#stores;
    const { config, id: imageId } = this.#manifest.image;
    const placed: string[] = [];
    try {
      if (image !== undefined)
        await images.place({ rootfsTmpPath: image, config, source: { kind: "pack", snapshot: this.#manifest.head } });
      for (const link of absent.toReversed()) {
        await snapshots.place(this.#dirOf(link), await this.#manifestOf(link));
        placed.push(link.id);
      }
      // an existing snapshot may have been removed meanwhile; from here on it is in use
      for (const { id } of this.#manifest.links) await snapshots.byId(id);
      if (!(await this.#hasImage(imageId)))
        throw new ForkdError("NOT_FOUND", "Cannot unpack: the image of the snapshot was removed meanwhile.");
      await this.#remember(absent);
      // before the tag is moved: the snapshot that has it now may be removed afterwards
      await snapshots.sync(this.#manifest.head);
      await snapshots.name(this.#tag, this.#manifest.head);
    } catch (error) {
      for (const id of placed) await snapshots.remove(id);
      if (image !== undefined && (await this.#hasImage(imageId)) && !(await this.#isImageUsed())) await images.remove(imageId);
      throw error;
    }
  }

  async #isImageUsed(): Promise<boolean> {
    return (await this.#stores.snapshots.everything()).some(({ manifest }) => manifest.imageId === this.#manifest.image.id);
  }

  async #remember(absent: readonly PackLink[]): Promise<void> {
    const cache = new PackCache(this.#stores.home);
    await cache.prepare();
    for (const link of absent) {
      await cache.keepLink({ ...link, network: this.#networkOf(link) });
      const contents = new Set(contentsOf(link).map(({ content }) => content));
      for (const { contentDigest, contentSize, digest, size } of this.#manifest.blobs)
        if (contents.has(contentDigest))
          await cache.keepContent({ digest: contentDigest, size: contentSize }, this.#manifest.compression.level, { digest, size });
    }
  }

  async #manifestOf(link: PackLink): Promise<SnapshotManifest> {
    const dir = this.#dirOf(link);
    const isHead = link === headOf(this.#manifest);
    const { memory, state, disk, ...facts } = link;
    const file = join(dir, memory.kind === "base" ? "memory.ram" : "memory.delta");
    const { blocks, size } = await stat(file);
    const { pages } = memory;
    return {
      ...facts,
      network: this.#networkOf(link),
      version: SNAPSHOT_VERSION,
      tag: isHead ? this.#tag : link.id,
      name: isHead ? this.#manifest.name : undefined,
      imageId: this.#manifest.image.id,
      memory: memory.kind === "base" ? { kind: "base", bytes: blocks * 512 } : { kind: "delta", base: memory.base, pages, bytes: size },
      disk: disk && { sizeMiB: disk.sizeMiB, layers: disk.layers.map(({ id }) => id) },
      deviceStateBytes: state.bytes,
    };
  }

  async #hasImage(id: string): Promise<boolean> {
    try {
      await this.#stores.images.get(id);
      return true;
    } catch (error) {
      if (error instanceof ForkdError && (error.code === "NOT_FOUND" || error.code === "IMAGE_INVALID")) return false;
      throw error;
    }
  }

  #networkOf({ id }: PackLink): NetworkPolicy {
    return this.#networks.get(id) ?? NO_NETWORK;
  }

  #dirOf({ id }: PackLink): string {
    return join(this.#staging, id);
  }
}

async function unpackBlob(content: AsyncIterable<Buffer>, { kind, path, bytes, pages }: Target): Promise<void> {
  if (kind === "delta") return decodeDelta(content, path, { bytes, pages });
  if (kind === "memory" || kind === "disk-layer") return decodeFile(content, path, { bytes, pages });
  try {
    await using file = await open(path, "wx", 0o600);
    for await (const piece of content) await file.writeFile(piece);
  } catch (error) {
    throw writeFailure(error);
  }
}
