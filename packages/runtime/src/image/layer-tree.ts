// The tree that results from a stack of layers: the layer and entry of each path.

import { ForkdError } from "../errors.ts";
import { judgeEntry, keptXattrs, pathComponents, refused } from "../archive/tar-filter.ts";
import { rootHeader } from "../archive/tar-write.ts";
import { MAX_PATH, showPath } from "../archive/tar-read.ts";
import type { TarHeader } from "../archive/tar-read.ts";

const WHITEOUT = ".wh.";
const OPAQUE = ".wh..wh..opq";
const MAX_LINK_HOPS = 40;
/** Memory of a node in addition to its path: headers, names, a slot in its folder */
const ENTRY_BYTES = 512;
const XATTR_BYTES = 256;

/** One file, link or folder; hard links share it */
export type Inode = {
  header: TarHeader;
  layer: number;
  /** index of the entry in its layer */
  index: number;
};

export type TreeNode = {
  inode: Inode;
  /** last layer that mentioned this path or a path below it */
  touched: number;
  /** only for folders */
  children: Map<string, TreeNode> | undefined;
};

export type LayerTree = {
  root: TreeNode;
  /** including folders that no entry describes */
  entries: number;
  /** approximate memory of the tree */
  bytes: number;
};

export type ApplyOpts = {
  label: string;
  /** whether names beginning with .wh. delete: yes in layers, no in a plain root file system */
  whiteouts: boolean;
  maxEntries: number;
  maxTreeBytes: number;
};

export function newTree(): LayerTree {
  return { root: implicitFolder(-1), entries: 0, bytes: 0 };
}

/** Adds one entry of a layer to the tree. Entries must be added in the order of their layer, layers from the lowest */
export function applyEntry(tree: LayerTree, header: TarHeader, layer: number, index: number, opts: ApplyOpts): void {
  count(tree, header.path.length + header.linkname.length, opts);
  const components = pathComponents(header.path, "entry", opts.label);
  if (judgeEntry(header, components, opts.label) === "drop") return;
  const name = components.at(-1);
  if (name === undefined) {
    tree.root.inode = inodeOf(tree, header, layer, index, opts);
    return;
  }
  const isWhiteout = opts.whiteouts && name.startsWith(WHITEOUT);
  const { node: parent, length } = makeFolder(tree, components.slice(0, -1), { layer, header, label: opts.label }, opts);
  if (isWhiteout) {
    applyWhiteout(parent, name, layer, header, opts.label);
    return;
  }
  const children = childrenOf(parent);
  if (length + name.length > MAX_PATH)
    throw refused(opts.label, "entry", header.path, `its path is longer than ${MAX_PATH} bytes, links followed`);
  // paths are stored in full, also when a short link led to them
  tree.bytes += length;
  const inode = header.type === "hardlink" ? hardLinkTarget(tree, header, layer, opts.label) : inodeOf(tree, header, layer, index, opts);
  const before = children.get(name);
  const isFolder = header.type === "dir";
  // A folder over a folder changes its attributes and keeps its entries; every other combination replaces the old entry.
  const kept = isFolder && before?.children !== undefined ? before.children : isFolder ? new Map<string, TreeNode>() : undefined;
  children.set(name, { inode, touched: layer, children: kept });
}

/** Every path, parents first, in an order that depends only on the names */
export function* walkTree(tree: LayerTree): Generator<{ path: string; node: TreeNode }> {
  const stack: { path: string; node: TreeNode }[] = [{ path: "", node: tree.root }];
  for (let item = stack.pop(); item !== undefined; item = stack.pop()) {
    yield item;
    const { path, node } = item;
    const names = node.children === undefined ? [] : [...node.children.keys()].toSorted().toReversed();
    for (const name of names) {
      const child = node.children?.get(name);
      if (child !== undefined) stack.push({ path: path === "" ? name : `${path}/${name}`, node: child });
    }
  }
}

function count(tree: LayerTree, bytes: number, { label, maxEntries, maxTreeBytes }: ApplyOpts): void {
  tree.entries++;
  tree.bytes += ENTRY_BYTES + bytes;
  const hint = "The image was not stored.";
  if (tree.entries > maxEntries)
    throw new ForkdError("IMAGE_TOO_LARGE", `Refused ${label}: the image has more than ${maxEntries} entries.`, { hint });
  if (tree.bytes > maxTreeBytes)
    throw new ForkdError("IMAGE_TOO_LARGE", `Refused ${label}: names, links and attributes of its files are too many to read.`, { hint });
}

function inodeOf(tree: LayerTree, header: TarHeader, layer: number, index: number, { label }: ApplyOpts): Inode {
  const xattrs = keptXattrs(header, label);
  for (const [name, value] of xattrs) tree.bytes += XATTR_BYTES + name.length + value.length;
  return { header: { ...header, xattrs }, layer, index };
}

type Place = { layer: number; header: TarHeader; label: string };
/** `length`: of its path with a trailing slash, links resolved */
type Found = { node: TreeNode; length: number };

/** The parent folder of an entry, created when it is missing */
function makeFolder(tree: LayerTree, components: readonly string[], place: Place, opts: ApplyOpts): Found {
  const folder = resolveFolder(tree, components, place, (here, name) => {
    count(tree, 0, opts);
    const made = implicitFolder(place.layer);
    childrenOf(here).set(name, made);
    return made;
  });
  if (folder === undefined) throw refused(place.label, "entry", place.header.path, "its path runs through something that is not a folder");
  return folder;
}

/** Resolves a path from the root. Links are followed inside the tree, never out of it */
function resolveFolder(
  tree: LayerTree,
  components: readonly string[],
  place: Place,
  onMissing: (here: TreeNode, name: string) => TreeNode | undefined,
): Found | undefined {
  const root = { node: tree.root, length: 0 };
  let trail: Found[] = [root];
  const todo = [...components].toReversed();
  let hops = 0;
  for (let name = todo.pop(); name !== undefined; name = todo.pop()) {
    const { node: here, length } = trail.at(-1) ?? root;
    if (name === "..") {
      if (trail.length > 1) trail.pop();
      continue;
    }
    const next = here.children?.get(name) ?? onMissing(here, name);
    if (next?.inode.header.type === "symlink") {
      const target = next.inode.header.linkname;
      if (++hops > MAX_LINK_HOPS) throw refused(place.label, "entry", place.header.path, "its path runs through a loop of symbolic links");
      if (target.startsWith("/")) trail = [root];
      todo.push(
        ...target
          .split("/")
          .filter((part) => part !== "" && part !== ".")
          .toReversed(),
      );
      continue;
    }
    if (next?.children === undefined) return undefined;
    if (length + name.length >= MAX_PATH)
      throw refused(place.label, "entry", place.header.path, `its path is longer than ${MAX_PATH} bytes, links followed`);
    trail.push({ node: next, length: length + name.length + 1 });
  }
  for (const { node } of trail) node.touched = Math.max(node.touched, place.layer);
  return trail.at(-1);
}

function applyWhiteout(parent: TreeNode, name: string, layer: number, header: TarHeader, label: string): void {
  const children = childrenOf(parent);
  if (name === OPAQUE) {
    pruneBelow(parent, layer);
    return;
  }
  // other names with a double mark are internal to a union file system
  if (name.startsWith(`${WHITEOUT}${WHITEOUT}`)) return;
  const hidden = name.slice(WHITEOUT.length);
  if (hidden === "" || hidden === "." || hidden === "..") throw refused(label, "entry", header.path, "it deletes nothing that has a name");
  const node = children.get(hidden);
  if (node === undefined) return;
  // A whiteout refers to the layers below, at any position in its own layer.
  if (node.touched < layer) children.delete(hidden);
  else pruneBelow(node, layer);
}

function pruneBelow(node: TreeNode, layer: number): void {
  if (node.children === undefined) return;
  for (const [name, child] of node.children) {
    if (child.touched < layer) node.children.delete(name);
    else pruneBelow(child, layer);
  }
}

function hardLinkTarget(tree: LayerTree, header: TarHeader, layer: number, label: string): Inode {
  // some tools write the target relative to the root of the image
  const components = pathComponents(header.linkname.replace(/^\/+/, ""), "the hard link target", label);
  const name = components.at(-1);
  const folder = resolveFolder(tree, components.slice(0, -1), { layer, header, label }, () => undefined);
  const target = name === undefined ? undefined : folder?.node.children?.get(name);
  if (target === undefined)
    throw refused(label, "entry", header.path, `it is a hard link to ${showPath(header.linkname)}, which is not in the image`);
  if (target.children !== undefined) throw refused(label, "entry", header.path, "it is a hard link to a folder");
  return target.inode;
}

function childrenOf(node: TreeNode): Map<string, TreeNode> {
  node.children ??= new Map();
  return node.children;
}

function implicitFolder(layer: number): TreeNode {
  return {
    inode: { header: rootHeader({ path: "", type: "dir", mode: 0o755 }), layer: -1, index: -1 },
    touched: layer,
    children: new Map(),
  };
}
