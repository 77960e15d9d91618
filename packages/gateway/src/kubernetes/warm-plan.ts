// Decides which machines fetch, prepare or drop a snapshot, so that as many hold it as a WarmSnapshot says.

import { createHash } from "node:crypto";

import type { WarmSpec } from "./warm-snapshot.ts";

/** One machine, as the gateway last saw it */
export type Machine = {
  name: string;
  /** it answers now */
  isUp: boolean;
  /** it takes no forks: its copy stays and counts for none */
  isCordoned: boolean;
  /** it has the snapshot; a machine that is away for a moment still counts */
  holds: boolean;
  isFetching: boolean;
  /** it failed a moment ago */
  hasFailed: boolean;
  /** VMMs that wait there for a fork of it */
  pool: number;
};

/** Names of machines */
export type WarmPlan = { fetch: string[]; pool: string[]; drop: string[] };

/** @param key what the WarmSnapshot is told apart by: snapshots with one replica each are spread over all machines */
export function planFor(spec: Pick<WarmSpec, "nodes" | "replicas" | "pool" | "keep">, key: string, machines: readonly Machine[]): WarmPlan {
  const isAllowed = ({ name }: Machine): boolean => !spec.nodes || spec.nodes.length === 0 || spec.nodes.includes(name);
  // The same order at each turn and in each gateway, so that a copy stays where it is.
  const inOrder = machines.toSorted((a, b) => (rank(key, a) < rank(key, b) ? -1 : 1));
  const holders = inOrder.filter((machine) => machine.holds && !machine.isCordoned && isAllowed(machine)).slice(0, spec.replicas);
  const onTheWay = inOrder.filter((machine) => machine.isFetching && !machine.holds && isAllowed(machine)).length;
  const missing = Math.max(0, spec.replicas - holders.length - onTheWay);
  const able = inOrder.filter(
    (machine) => isAllowed(machine) && isFree(machine) && !machine.holds && !machine.isFetching && !machine.hasFailed,
  );
  const surplus = inOrder.filter((machine) => isFree(machine) && machine.holds && !holders.includes(machine));
  // Never the last copy, and none before the wanted ones are there.
  const mayDrop = !spec.keep && holders.length > 0 && missing === 0 && onTheWay === 0;
  return {
    fetch: names(able.slice(0, missing)),
    pool: names(holders.filter(({ isUp, pool, hasFailed }) => isUp && pool !== spec.pool && !hasFailed)),
    drop: mayDrop ? names(surplus.filter(({ hasFailed }) => !hasFailed)) : [],
  };
}

function isFree({ isUp, isCordoned }: Machine): boolean {
  return isUp && !isCordoned;
}

function rank(key: string, { name }: Machine): string {
  return createHash("sha256").update(`${key} ${name}`).digest("hex");
}

function names(machines: readonly Machine[]): string[] {
  return machines.map(({ name }) => name);
}
