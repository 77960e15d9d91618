// The tree that a stack of layers adds up to: which entry of which layer each path finally is.

import { ForkdError } from "../errors.ts";
import { judgeEntry, keptXattrs, pathComponents, refused } from "./tar-filter.ts";
import { rootHeader } from "./tar-write.ts";
import { showPath } from "./tar-read.ts";
import type { TarHeader } from "./tar-read.ts";

const WHITEOUT = ".wh.";
const OPAQUE = ".wh..wh..opq";
const MAX_LINK_HOPS = 40;

/** One file, link or folder; hard links share it */
export type Inode = {
  header: TarHeader;
  layer: number;
  /** number of the entry within its layer */
  index: number;
};

export type TreeNode = {
  inode: Inode;
  /** last layer that mentioned this path or something below it */
  touched: number;
  /** only of folders */
  children: Map<string, TreeNode> | undefined;
};

export type LayerTree = { root: TreeNode; entries: number };

export type ApplyOpts = {
  label: string;
  /** whether names beginning with .wh. delete: yes in layers, no in a plain root file system */
  whiteouts: boolean;
  maxEntries: number;
};

export function newTree(): LayerTree {
  return { root: implicitFolder(-1), entries: 0 };
}

/** Adds one entry of a layer to the tree. Entries of a layer must come in their order, layers from the lowest */
export function applyEntry(tree: LayerTree, header: TarHeader, layer: number, index: number, opts: ApplyOpts): void {
  tree.entries++;
  if (tree.entries > opts.maxEntries)
    throw new ForkdError("IMAGE_TOO_LARGE", `Refused ${opts.label}: the image has more than ${opts.maxEntries} entries.`, {
      hint: "The image was not stored.",
    });
  const components = pathComponents(header.path, "entry", opts.label);
  if (judgeEntry(header, components, opts.label) === "drop") return;
  const name = components.at(-1);
  if (name === undefined) {
    tree.root.inode = { header: clean(header), layer, index };
    return;
  }
  const isWhiteout = opts.whiteouts && name.startsWith(WHITEOUT);
  const parent = makeFolder(tree, components.slice(0, -1), { layer, header, label: opts.label });
  if (isWhiteout) {
    applyWhiteout(parent, name, layer, header, opts.label);
    return;
  }
  const children = childrenOf(parent);
  const inode = header.type === "hardlink" ? hardLinkTarget(tree, header, layer, opts.label) : { header: clean(header), layer, index };
  const before = children.get(name);
  const isFolder = header.type === "dir";
  // A folder over a folder changes its attributes and keeps what is in it; everything else replaces what was there
  const kept = isFolder && before?.children !== undefined ? before.children : isFolder ? new Map<string, TreeNode>() : undefined;
  children.set(name, { inode, touched: layer, children: kept });
}

/** Every path, parents first, in an order that depends on nothing but the names */
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

type Place = { layer: number; header: TarHeader; label: string };

/** The folder an entry lies in, made where it is missing */
function makeFolder(tree: LayerTree, components: readonly string[], place: Place): TreeNode {
  const folder = resolveFolder(tree, components, place, (here, name) => {
    const made = implicitFolder(place.layer);
    childrenOf(here).set(name, made);
    return made;
  });
  if (folder === undefined) throw refused(place.label, "entry", place.header.path, "its path runs through something that is not a folder");
  return folder;
}

/** Walks from the root. A link on the way is followed inside the tree, never out of it */
function resolveFolder(
  tree: LayerTree,
  components: readonly string[],
  place: Place,
  onMissing: (here: TreeNode, name: string) => TreeNode | undefined,
): TreeNode | undefined {
  let trail: TreeNode[] = [tree.root];
  const todo = [...components].toReversed();
  let hops = 0;
  for (let name = todo.pop(); name !== undefined; name = todo.pop()) {
    const here = trail.at(-1) ?? tree.root;
    if (name === "..") {
      if (trail.length > 1) trail.pop();
      continue;
    }
    const next = here.children?.get(name) ?? onMissing(here, name);
    if (next?.inode.header.type === "symlink") {
      const target = next.inode.header.linkname;
      if (++hops > MAX_LINK_HOPS) throw refused(place.label, "entry", place.header.path, "its path runs through a loop of symbolic links");
      if (target.startsWith("/")) trail = [tree.root];
      todo.push(
        ...target
          .split("/")
          .filter((part) => part !== "" && part !== ".")
          .toReversed(),
      );
      continue;
    }
    if (next?.children === undefined) return undefined;
    trail.push(next);
  }
  for (const node of trail) node.touched = Math.max(node.touched, place.layer);
  return trail.at(-1);
}

function applyWhiteout(parent: TreeNode, name: string, layer: number, header: TarHeader, label: string): void {
  const children = childrenOf(parent);
  if (name === OPAQUE) {
    pruneBelow(parent, layer);
    return;
  }
  // Other doubly marked names are a union file system's own notes
  if (name.startsWith(`${WHITEOUT}${WHITEOUT}`)) return;
  const hidden = name.slice(WHITEOUT.length);
  if (hidden === "" || hidden === "." || hidden === "..") throw refused(label, "entry", header.path, "it deletes nothing that has a name");
  const node = children.get(hidden);
  if (node === undefined) return;
  // A whiteout speaks of the layers below, wherever in its own layer it stands
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
  // Some tools write the target as seen from the root of the image
  const components = pathComponents(header.linkname.replace(/^\/+/, ""), "the hard link target", label);
  const name = components.at(-1);
  const folder = resolveFolder(tree, components.slice(0, -1), { layer, header, label }, () => undefined);
  const target = name === undefined ? undefined : folder?.children?.get(name);
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

function clean(header: TarHeader): TarHeader {
  return { ...header, xattrs: keptXattrs(header.xattrs) };
}
