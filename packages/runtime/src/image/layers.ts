// Flattens a stack of layers into one squashfs, in two passes: the first reads the headers and decides which entries remain,
// the second streams their content. Nothing is unpacked onto the host's file system.

import { Readable } from "node:stream";
import { ForkdError } from "../errors.ts";
import type { ConfinementPolicy } from "../host/confined.ts";
import type { Progress } from "../util/progress.ts";
import { unpack } from "../archive/decompress.ts";
import type { Budget } from "../archive/decompress.ts";
import { applyEntry, newTree, walkTree } from "./layer-tree.ts";
import type { Inode, LayerTree } from "./layer-tree.ts";
import { writeSquashfs } from "./squashfs.ts";
import { readTar } from "../archive/tar-read.ts";
import { encodeHeader, endOfTar, paddingOf } from "../archive/tar-write.ts";

/** The daemon holds the tree of an image in memory while it reads the layers */
export const MAX_ENTRIES = 1_000_000;
export const MAX_TREE_BYTES: number = 768 * 1024 ** 2;
/** Allowance for headers and padding that the second pass writes per entry */
const HEADER_ROOM = 4096;

export type Layer = {
  /** name of the layer in errors */
  label: string;
  /** opens the packed bytes from the start; called once per pass */
  open: () => Readable;
  diffId?: string | undefined;
  digest?: string | undefined;
  size?: number | undefined;
};

export type FlattenOpts = {
  maxBytes: number;
  /** names beginning with .wh. delete; not in a plain root file system */
  whiteouts: boolean;
  maxEntries?: number;
  maxTreeBytes?: number;
  confinement?: ConfinementPolicy | undefined;
  signal?: AbortSignal | undefined;
  progress?: Progress | undefined;
};

/** Layers from the lowest to the highest */
export async function flattenLayers(layers: readonly Layer[], rootfs: string, opts: FlattenOpts): Promise<void> {
  const tree = newTree();
  const budget: Budget = { maxBytes: opts.maxBytes, unpacked: 0 };
  const { signal, confinement } = opts;
  for (const [number, layer] of layers.entries()) {
    opts.progress?.({ step: "Reading layers", done: number, total: layers.length, unit: "items" });
    let index = 0;
    for await (const entry of readTar(unpack(layer.open(), { ...layer, budget, signal, confinement }), layer.label)) {
      applyEntry(tree, entry.header, number, index++, {
        label: layer.label,
        whiteouts: opts.whiteouts,
        maxEntries: opts.maxEntries ?? MAX_ENTRIES,
        maxTreeBytes: opts.maxTreeBytes ?? MAX_TREE_BYTES,
      });
    }
  }
  if (tree.root.children?.size === 0) throw new ForkdError("IMAGE_INVALID", "Refused the image: it holds no files.");
  const limit = opts.maxBytes + tree.entries * HEADER_ROOM;
  await writeSquashfs(Readable.from(emit(tree, layers, opts)), rootfs, {
    root: tree.root.inode.header,
    newest: newestIn(tree),
    maxBytes: limit,
    confinement,
    signal,
    progress: opts.progress,
  });
}

function newestIn(tree: LayerTree): number {
  let newest = 0;
  for (const { node } of walkTree(tree)) newest = Math.max(newest, node.inode.header.mtime);
  return newest;
}

/** Folders and links first, then the content layer by layer, then hard links */
async function* emit(tree: LayerTree, layers: readonly Layer[], opts: FlattenOpts): AsyncGenerator<Buffer> {
  const files = new Map<Inode, string>();
  const hardLinks: { path: string; inode: Inode }[] = [];
  for (const { path, node } of walkTree(tree)) {
    const { header } = node.inode;
    if (node === tree.root) continue;
    const name = `./${path}`;
    if (header.type !== "file") yield encodeHeader({ ...header, path: name, size: 0 });
    else if (files.has(node.inode)) hardLinks.push({ path: name, inode: node.inode });
    else files.set(node.inode, name);
  }
  for (const [number, layer] of layers.entries()) yield* emitContent(layer, number, files, opts);
  for (const { path, inode } of hardLinks)
    yield encodeHeader({ ...inode.header, path, type: "hardlink", size: 0, linkname: files.get(inode) ?? "", xattrs: new Map() });
  yield endOfTar();
}

async function* emitContent(layer: Layer, number: number, files: ReadonlyMap<Inode, string>, opts: FlattenOpts): AsyncGenerator<Buffer> {
  const wanted = new Map<number, { inode: Inode; path: string }>();
  for (const [inode, path] of files) if (inode.layer === number) wanted.set(inode.index, { inode, path });
  if (wanted.size === 0) return;
  const budget: Budget = { maxBytes: opts.maxBytes, unpacked: 0 };
  const { signal, confinement } = opts;
  let index = 0;
  for await (const entry of readTar(unpack(layer.open(), { label: layer.label, budget, signal, confinement }), layer.label)) {
    const file = wanted.get(index);
    wanted.delete(index++);
    if (file === undefined) continue;
    const { header } = file.inode;
    if (entry.header.size !== header.size || entry.header.path !== header.path)
      throw new ForkdError("IMAGE_INVALID", `Cannot read ${layer.label}: it changed while it was read.`);
    yield encodeHeader({ ...header, path: file.path });
    yield* entry.body();
    yield paddingOf(header.size);
    if (wanted.size === 0) break;
  }
}
