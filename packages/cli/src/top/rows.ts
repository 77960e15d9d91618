// The tree with its usage as rows: sorted among siblings, filtered, with collapsed parts left out. Pure.

import type { SandboxInfo, SandboxStats, Tree, TreeNode, TreeSandbox } from "forkd";

export const SORTS = ["name", "cpu", "memory", "age"] as const;
export type Sort = (typeof SORTS)[number];

/** What is known of one sandbox beyond the tree; of a snapshot, the sums of all sandboxes below it */
export type Usage = {
  /** percent of one CPU; undefined until there are two readings */
  cpu: number | undefined;
  /** guest memory of its own */
  memoryBytes: number;
  /** memory of its VMM, shared pages divided by their users */
  processBytes: number;
  diskBytes: number | null;
};

export type Row = {
  /** the same in every refresh */
  key: string;
  kind: "snapshot" | "sandbox";
  /** argument for requests: id of a sandbox, tag of a snapshot; undefined: a snapshot without a tag */
  target: string | undefined;
  label: string;
  state: string;
  usage: Usage | undefined;
  createdAt: number | undefined;
  depth: number;
  /** for each level above: whether another sibling follows there; the last one is the row's own */
  follows: boolean[];
  /** number of rows below it, shown or not */
  below: number;
  isCollapsed: boolean;
};

export type Facts = {
  tree: Tree;
  /** by sandbox id */
  usage: ReadonlyMap<string, Usage>;
  /** seconds since 1970, by sandbox id */
  createdAt: ReadonlyMap<string, number>;
};

export type View = { sort: Sort; filter: string; collapsed: ReadonlySet<string> };

type Item = {
  row: Omit<Row, "depth" | "follows" | "isCollapsed">;
  items: Item[];
  /** what a search compares */
  text: string;
};

export function rowsOf(facts: Facts, view: View): Row[] {
  const wanted = view.filter.toLowerCase();
  const roots = facts.tree.roots.map((root) => itemOf(root, facts));
  const found = wanted === "" ? roots : roots.flatMap((root) => matching(root, wanted));
  const rows: Row[] = [];
  lay(rows, found, view, [], wanted !== "");
  return rows;
}

/** CPU usage between two readings, and the sizes of the second */
export function usageOf(
  stats: readonly SandboxStats[],
  at: number,
  before?: { cpuMs: ReadonlyMap<string, number>; at: number },
): Map<string, Usage> {
  return new Map(
    stats.map((row) => {
      const last = before?.cpuMs.get(row.id);
      const cpu =
        last === undefined || before === undefined ? undefined : (Math.max(0, row.cpu_ms - last) / Math.max(1, at - before.at)) * 100;
      return [row.id, { cpu, memoryBytes: row.private_guest_bytes, processBytes: row.pss_bytes, diskBytes: row.disk_bytes }];
    }),
  );
}

export function factsOf(tree: Tree, sandboxes: readonly SandboxInfo[], usage: ReadonlyMap<string, Usage>): Facts {
  return { tree, usage, createdAt: new Map(sandboxes.map(({ id, created_at_unix: at }) => [id, at])) };
}

/** Whether a list of usages belongs to another tree: a sandbox is new, gone, or has another state */
export function differs(tree: Tree, stats: readonly SandboxStats[]): boolean {
  const live = new Map(stats.map(({ id, state }) => [id, state as string]));
  let known = 0;
  const isSame = (node: TreeNode): boolean =>
    node.sandboxes.every(({ id, state }) => {
      const now = live.get(id);
      if (now !== undefined) known++;
      return now === undefined ? !LIVE.has(state) : now === state;
    }) && node.snapshots.every(isSame);
  return !tree.roots.every(isSame) || known !== live.size;
}

/** States of sandboxes that have a process */
const LIVE = new Set(["running", "paused"]);

function itemOf(node: TreeNode, facts: Facts): Item {
  const items = [...node.sandboxes.map((sandbox) => sandboxItem(sandbox, facts)), ...node.snapshots.map((each) => itemOf(each, facts))];
  const name = node.tag === null ? `[removed ${node.id.slice(0, 12)}]` : `[${node.tag}]`;
  const below = items.reduce((sum, item) => sum + 1 + item.row.below, 0);
  return {
    row: {
      key: node.id,
      kind: "snapshot",
      target: node.tag ?? undefined,
      label: node.branched_from === null ? name : `${name} from ${node.branched_from}`,
      state: node.status === "ready" ? "" : node.status,
      usage: sumOf(items),
      createdAt: newest(items),
      below,
    },
    items,
    text: `${name} ${node.id} ${node.status}`.toLowerCase(),
  };
}

function sandboxItem(sandbox: TreeSandbox, facts: Facts): Item {
  const label = sandbox.name === null ? sandbox.id : `${sandbox.id} (${sandbox.name})`;
  const metadata = Object.entries(sandbox.metadata).map(([key, value]) => `${key}=${value}`);
  return {
    row: {
      key: sandbox.id,
      kind: "sandbox",
      target: sandbox.id,
      label,
      state: sandbox.state,
      usage: facts.usage.get(sandbox.id),
      createdAt: facts.createdAt.get(sandbox.id),
      below: 0,
    },
    items: [],
    text: [label, sandbox.state, ...metadata].join(" ").toLowerCase(),
  };
}

function sumOf(items: readonly Item[]): Usage | undefined {
  const usages = items.flatMap(({ row }) => row.usage ?? []);
  if (usages.length === 0) return undefined;
  const cpus = usages.flatMap(({ cpu }) => cpu ?? []);
  const disks = usages.flatMap(({ diskBytes }) => diskBytes ?? []);
  return {
    cpu: cpus.length === 0 ? undefined : sum(cpus),
    memoryBytes: sum(usages.map(({ memoryBytes }) => memoryBytes)),
    processBytes: sum(usages.map(({ processBytes }) => processBytes)),
    diskBytes: disks.length === 0 ? null : sum(disks),
  };
}

function newest(items: readonly Item[]): number | undefined {
  const times = items.flatMap(({ row }) => row.createdAt ?? []);
  return times.length === 0 ? undefined : times.reduce((a, b) => Math.max(a, b));
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((a, b) => a + b, 0);
}

/** The item with those below it that match, or all of them if it matches itself */
function matching(item: Item, wanted: string): Item[] {
  if (item.text.includes(wanted)) return [item];
  const items = item.items.flatMap((each) => matching(each, wanted));
  return items.length === 0 ? [] : [{ ...item, items }];
}

/** A search shows what it finds, also in collapsed parts */
function lay(rows: Row[], items: readonly Item[], view: View, above: readonly boolean[], isSearch: boolean): void {
  const sorted = items.toSorted(order(view.sort));
  for (const [i, item] of sorted.entries()) {
    const follows = [...above, i < sorted.length - 1];
    const isCollapsed = !isSearch && item.items.length > 0 && view.collapsed.has(item.row.key);
    rows.push({ ...item.row, depth: above.length, follows, isCollapsed });
    if (!isCollapsed) lay(rows, item.items, view, follows, isSearch);
  }
}

/** Sandboxes first, then the snapshots that build on the same one, as in `forkd tree` */
function order(sort: Sort): (a: Item, b: Item) => number {
  return (a, b) => byKind(a, b) || bySort(sort, a, b) || byName(a, b);
}

function byKind(a: Item, b: Item): number {
  return Number(a.row.kind === "snapshot") - Number(b.row.kind === "snapshot");
}

function bySort(sort: Sort, { row: a }: Item, { row: b }: Item): number {
  switch (sort) {
    case "name":
      return 0;
    case "cpu":
      return (b.usage?.cpu ?? -1) - (a.usage?.cpu ?? -1);
    case "memory":
      return (b.usage?.memoryBytes ?? -1) - (a.usage?.memoryBytes ?? -1);
    case "age":
      // the youngest first
      return (b.createdAt ?? 0) - (a.createdAt ?? 0);
  }
}

/** Sandboxes with a name first; ids are random */
function byName({ row: a }: Item, { row: b }: Item): number {
  const [nameA, nameB] = [a, b].map((row) => (row.kind === "sandbox" ? (/\((.*)\)$/.exec(row.label)?.[1] ?? "\uffff") : row.label));
  return compare(nameA ?? "", nameB ?? "") || compare(a.key, b.key);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
