// The tree, read once and then kept up to date by events, and the usage of the sandboxes.

import { batch, computed, signal } from "@preact/signals";
import { explain, forkd, isReachable } from "./api.ts";
import { login } from "./session.ts";
import { entriesOf } from "./tree/rows.ts";
import type { ForkdEvent, SandboxStats, Tree, TreeNode, TreeSandbox } from "forkd";

/** Many events within this time are one reading of the tree */
const SETTLE_MS = 120;
/** Time between two readings of the usage, and the part of the time that they may take */
const USAGE_MS = 3000;
const USAGE_SHARE = 5;
const RETRY_MS = 1000;
const KEPT_EVENTS = 500;

/** Events after which a sandbox only has another state */
const NEW_STATE: Partial<Record<ForkdEvent["type"], string>> = {
  "sandbox.paused": "paused",
  "sandbox.suspended": "suspended",
  "sandbox.resumed": "running",
  "sandbox.ended": "ended",
  "sandbox.lost": "lost",
};

/** `cpu`: percent of one CPU; undefined until there are two readings */
export type Usage = { cpu: number | undefined; privateBytes: number };

export const tree = signal<Tree | null>(null);
export const treeError = signal<string | null>(null);
export const usage = signal<ReadonlyMap<string, Usage>>(new Map());
/** Newest first */
export const recentEvents = signal<readonly ForkdEvent[]>([]);
export const entries = computed(() => (tree.value ? entriesOf(tree.value) : []));

export const totals = computed(() => {
  const sums = { snapshots: 0, sandboxes: 0, running: 0, guestBytes: 0, privateBytes: 0 };
  const visit = (node: TreeNode): void => {
    sums.snapshots++;
    for (const { id, state, memory_mib } of node.sandboxes) {
      sums.sandboxes++;
      if (state !== "running") continue;
      sums.running++;
      sums.guestBytes += memory_mib * 1024 * 1024;
      sums.privateBytes += usage.value.get(id)?.privateBytes ?? 0;
    }
    node.snapshots.forEach(visit);
  };
  tree.value?.roots.forEach(visit);
  return sums;
});

let stop: AbortController | null = null;
let position: string | undefined;
let isStale = false;
let reading: Promise<void> | null = null;

/** A hidden page holds no connection: browsers share six between all pages of a host */
export function startLive(): void {
  document.addEventListener("visibilitychange", follow);
  follow();
}

export function findSandbox(idOrName: string): { sandbox: TreeSandbox; snapshot: TreeNode } | null {
  const visit = (node: TreeNode): { sandbox: TreeSandbox; snapshot: TreeNode } | null => {
    const sandbox = node.sandboxes.find(({ id, name }) => id === idOrName || name === idOrName);
    if (sandbox) return { sandbox, snapshot: node };
    for (const each of node.snapshots) {
      const found = visit(each);
      if (found) return found;
    }
    return null;
  };
  for (const root of tree.value?.roots ?? []) {
    const found = visit(root);
    if (found) return found;
  }
  return null;
}

function follow(): void {
  stop?.abort();
  stop = null;
  if (document.hidden) return;
  stop = new AbortController();
  void followEvents(stop.signal);
  void followUsage(stop.signal);
}

async function followEvents(signal: AbortSignal): Promise<void> {
  // read after the stream is asked for: what happens meanwhile is in one of the two
  refreshSoon();
  while (!signal.aborted && login.value.is === "in") {
    try {
      const onPosition = (at: string): void => void (position = at);
      for await (const event of forkd.events({ signal, since: position, onPosition })) apply(event);
    } catch (error) {
      if (!signal.aborted) treeError.value = explain(error);
    }
    if (!signal.aborted) await pause(RETRY_MS, signal);
  }
}

function apply(event: ForkdEvent): void {
  recentEvents.value = [event, ...recentEvents.value].slice(0, KEPT_EVENTS);
  const state = NEW_STATE[event.type];
  if (event.sandbox !== null && state !== undefined) changeSandbox(event.sandbox, (sandbox) => ({ ...sandbox, state }));
  else if (event.sandbox !== null && event.type === "sandbox.deleted") changeSandbox(event.sandbox, () => null);
  else if (/^(sandbox|snapshot|daemon)\./.test(event.type)) refreshSoon();
}

/** Copies only the nodes on the way to the sandbox */
function changeSandbox(id: string, change: (sandbox: TreeSandbox) => TreeSandbox | null): void {
  const visit = (node: TreeNode): TreeNode => {
    if (node.sandboxes.some((sandbox) => sandbox.id === id))
      return { ...node, sandboxes: node.sandboxes.flatMap((sandbox) => (sandbox.id === id ? (change(sandbox) ?? []) : [sandbox])) };
    const snapshots = node.snapshots.map(visit);
    return snapshots.some((each, at) => each !== node.snapshots[at]) ? { ...node, snapshots } : node;
  };
  if (tree.value) tree.value = { roots: tree.value.roots.map(visit) };
}

/** Reads the tree again, once for all events that come meanwhile */
export function refreshSoon(): void {
  isStale = true;
  reading ??= refresh().finally(() => {
    reading = null;
    if (isStale && !document.hidden && login.value.is !== "out") refreshSoon();
  });
}

async function refresh(): Promise<void> {
  if (tree.value !== null) await pause(SETTLE_MS);
  isStale = false;
  const began = performance.now();
  try {
    const read = await forkd.tree();
    batch(() => {
      tree.value = read;
      treeError.value = null;
    });
    // a large tree takes longer; the daemon must have time for the forks
    await pause(Math.min(2000, (performance.now() - began) * 2));
  } catch (error) {
    treeError.value = explain(error);
    isStale = true;
    await pause(RETRY_MS);
  }
}

async function followUsage(signal: AbortSignal): Promise<void> {
  let before: { cpuMs: Map<string, number>; at: number } | undefined;
  while (!signal.aborted && login.value.is === "in") {
    const began = performance.now();
    try {
      if (totals.value.running > 0) {
        const stats = await forkd.stats({ signal });
        const at = performance.now();
        usage.value = usageOf(stats, before, at);
        before = { cpuMs: new Map(stats.map(({ id, cpu_ms }) => [id, cpu_ms])), at };
      }
    } catch (error) {
      if (signal.aborted) return;
      // shown by the state of the connection; other errors are the tree's as well
      if (isReachable.value) treeError.value = explain(error);
    }
    await pause(Math.max(before ? USAGE_MS : 300, (performance.now() - began) * USAGE_SHARE), signal);
  }
}

function usageOf(
  stats: readonly SandboxStats[],
  before: { cpuMs: Map<string, number>; at: number } | undefined,
  at: number,
): Map<string, Usage> {
  return new Map(
    stats.map(({ id, cpu_ms, private_guest_bytes }) => {
      const last = before?.cpuMs.get(id);
      const cpu = last === undefined || !before ? undefined : (Math.max(0, cpu_ms - last) / Math.max(1, at - before.at)) * 100;
      return [id, { cpu, privateBytes: private_guest_bytes }];
    }),
  );
}

/** Resolves early when the signal aborts */
function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
