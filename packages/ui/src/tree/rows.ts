// The tree as rows with rails, as a git graph shows commits. Pure.

import type { Tree, TreeNode, TreeSandbox } from "forkd";

export type Entry =
  | { kind: "snapshot"; key: string; node: TreeNode; children: Entry[] }
  | { kind: "sandbox"; key: string; sandbox: TreeSandbox; snapshot: TreeNode; children: Entry[] };

export type Row = {
  entry: Entry;
  level: number;
  /** column of its rail */
  lane: number;
  /** column of the parent's rail; null: a root */
  from: number | null;
  /** columns of rails that pass by */
  through: number[];
  /** its rail continues to the next row */
  continues: boolean;
  isCollapsed: boolean;
  /** number of entries below it, shown or not */
  below: number;
};

export type View = {
  search: string;
  /** states of sandboxes; empty: all */
  states: ReadonlySet<string>;
  collapsed: ReadonlySet<string>;
};

/** A branch hangs below its source while that exists, otherwise below the snapshot that it builds on */
export function entriesOf(tree: Tree): Entry[] {
  const sandboxes = new Map<string, Entry>();
  const parents = new Map<Entry, Entry | null>();
  const visit = (node: TreeNode, parent: Entry | null): void => {
    const entry: Entry = { kind: "snapshot", key: node.id, node, children: [] };
    parents.set(entry, parent);
    for (const sandbox of node.sandboxes.toSorted(byName)) {
      const child: Entry = { kind: "sandbox", key: sandbox.id, sandbox, snapshot: node, children: [] };
      sandboxes.set(sandbox.id, child);
      parents.set(child, entry);
    }
    for (const each of node.snapshots) visit(each, entry);
  };
  for (const root of tree.roots) visit(root, null);
  for (const entry of parents.keys()) {
    const source = entry.kind === "snapshot" && entry.node.branched_from !== null ? sandboxes.get(entry.node.branched_from) : undefined;
    // a sandbox that was suspended may descend from its own branch, which would be a circle
    if (source && !isBelow(source, entry, parents)) parents.set(entry, source);
  }
  for (const [entry, parent] of parents) parent?.children.push(entry);
  return [...parents].flatMap(([entry, parent]) => (parent === null ? [entry] : []));
}

export function rowsOf(roots: readonly Entry[], view: View): Row[] {
  const isFiltered = view.search !== "" || view.states.size > 0;
  const shown = isFiltered ? roots.flatMap((root) => matching(root, view)) : roots;
  const rows: Row[] = [];
  for (const root of shown) lay(rows, root, { level: 1, lane: 0, from: null, through: [] }, isFiltered ? new Set() : view.collapsed);
  return rows;
}

export function labelOf(entry: Entry): string {
  if (entry.kind === "sandbox") return entry.sandbox.name ?? entry.sandbox.id;
  return entry.node.tag ?? `removed ${entry.node.id.slice(0, 12)}`;
}

/** Key of each entry with children, for folding all */
export function parentsIn(entries: readonly Entry[]): string[] {
  return entries.flatMap((entry) => (entry.children.length === 0 ? [] : [entry.key, ...parentsIn(entry.children)]));
}

type Place = { level: number; lane: number; from: number | null; through: number[] };

/** An only child continues its parent's rail; several children have rails of their own beside it */
function lay(rows: Row[], entry: Entry, { level, lane, from, through }: Place, collapsed: ReadonlySet<string>): void {
  const isCollapsed = entry.children.length > 0 && collapsed.has(entry.key);
  const continues = entry.children.length > 0 && !isCollapsed;
  rows.push({ entry, level, lane, from, through, continues, isCollapsed, below: countBelow(entry) });
  if (!continues) return;
  const isLine = entry.children.length === 1;
  const childLane = isLine ? lane : lane + 1;
  for (const [at, child] of entry.children.entries()) {
    const isLast = at === entry.children.length - 1;
    const passing = isLine || isLast ? through : [...through, lane];
    lay(rows, child, { level: level + 1, lane: childLane, from: lane, through: passing }, collapsed);
  }
}

function countBelow(entry: Entry): number {
  return entry.children.reduce((sum, child) => sum + 1 + countBelow(child), 0);
}

/** The entry with those below it that match, or with all if it matches itself and no state is asked for */
function matching(entry: Entry, view: View): Entry[] {
  const isFound = textOf(entry).includes(view.search.toLowerCase());
  const isState = view.states.size === 0 || (entry.kind === "sandbox" && view.states.has(entry.sandbox.state));
  if (isFound && view.states.size === 0) return [entry];
  const children = entry.children.flatMap((child) => matching(child, isFound ? { ...view, search: "" } : view));
  return (isFound && isState) || children.length > 0 ? [{ ...entry, children }] : [];
}

/** What a search compares: name, id, node, state, `key=value` of the metadata */
function textOf(entry: Entry): string {
  if (entry.kind === "snapshot") return `${labelOf(entry)} ${entry.node.id} ${entry.node.status}`.toLowerCase();
  const { id, node, name, state, metadata } = entry.sandbox;
  const pairs = Object.entries(metadata).map(([key, value]) => `${key}=${value}`);
  return [name ?? "", id, node, state, ...pairs].join(" ").toLowerCase();
}

function isBelow(entry: Entry, ancestor: Entry, parents: ReadonlyMap<Entry, Entry | null>): boolean {
  for (let at: Entry | null = entry; at; at = parents.get(at) ?? null) if (at === ancestor) return true;
  return false;
}

/** Named sandboxes first, then the older ones */
function byName(a: TreeSandbox, b: TreeSandbox): number {
  if (a.name !== null && b.name !== null) return a.name < b.name ? -1 : Number(a.name > b.name);
  if (a.name !== b.name) return a.name === null ? 1 : -1;
  return a.created_at_unix - b.created_at_unix || (a.id < b.id ? -1 : 1);
}
