// The cluster and its work: parameters of the simulation.

import { logNormal, weighted, zipf } from "./random.ts";
import type { NodeFacts, Random, SnapshotFacts } from "@forkd/gateway/placement/facts";

export type Scenario = {
  nodes: number;
  forksPerMinute: number;
  /** of simulated time; not counted in the figures */
  warmUpSecs: number;
  /** of simulated time, after the warm-up */
  secs: number;
  snapshots: number;
  /** exponent of the snapshots' popularity */
  zipf: number;
  /** nodes that hold a snapshot at the beginning and never remove it */
  replicas: number;
  gateways: number;
  /** time between two reports of a node to the gateways, and on their way */
  reportEveryMs: number;
  reportDelayMs: number;
  /** life of a sandbox: log-normal */
  lifeMedianSecs: number;
  lifeSigma: number;
  /** a node dies, or is drained, every so often, and returns after downSecs */
  failEverySecs: number;
  drainEverySecs: number;
  downSecs: number;
  /** a new snapshot on one node gets this share of the forks, for burstSecs in the middle of the measured time */
  burstShare: number;
  burstSecs: number;
  /** share of the requests that fork a live sandbox */
  liveShare: number;
};

export const FULL: Scenario = {
  nodes: 1000,
  forksPerMinute: 100_000,
  warmUpSecs: 40,
  secs: 80,
  snapshots: 2000,
  zipf: 1,
  replicas: 3,
  gateways: 4,
  reportEveryMs: 1000,
  reportDelayMs: 100,
  lifeMedianSecs: 20,
  lifeSigma: 1.2,
  failEverySecs: 15,
  drainEverySecs: 10,
  downSecs: 40,
  burstShare: 0.1,
  burstSecs: 30,
  liveShare: 0.1,
};

/** The same work for each node, on few nodes */
export function scaled(nodes: number): Scenario {
  const part = nodes / FULL.nodes;
  return {
    ...FULL,
    nodes,
    forksPerMinute: Math.round(FULL.forksPerMinute * part),
    snapshots: Math.max(20, Math.round(FULL.snapshots * part)),
    replicas: Math.min(FULL.replicas, nodes),
  };
}

/** Properties of the simulated machines */
export const MODEL = {
  /** children of a request, by share of the requests */
  counts: [
    [0.9, 1],
    [0.09, 8],
    [0.01, 64],
  ],
  /** memory of a snapshot's children */
  memoryMiB: [
    [0.3, 256],
    [0.3, 512],
    [0.25, 1024],
    [0.1, 2048],
    [0.05, 4096],
  ],
  /** stored snapshot: log-normal; a delta of a live sandbox too */
  snapshotMiB: { median: 600, sigma: 0.7 },
  deltaMiB: { median: 40, sigma: 0.8 },
  /** processors that a sandbox uses on average: log-normal */
  coresPerSandbox: { median: 0.12, sigma: 1.2 },
  /** a fork's start on an idle processor */
  startMs: { warm: 30, disk: 100 },
  /** snapshots that a node keeps warm: those used last */
  warmSnapshots: 16,
  /** of each transfer; a node receives and sends so many at a time, the registry sends so many */
  transferMiBPerSec: 250,
  receiving: 4,
  sending: 4,
  registrySending: 40,
  /** a fetch that finds no free sender asks again after this time */
  busyMs: 50,
  /** one attempt on a node; one on a dead node */
  attemptMs: 2,
  timeoutMs: 1000,
} as const;

/** A quarter of the nodes has double size; one in 20 has an older engine, which a fifth of the snapshots cannot use */
export function makeNode(index: number): NodeFacts & { cores: number; diskMiB: number } {
  const size = index % 4 === 0 ? 2 : 1;
  const memoryMiB = size * 128 * 1024;
  const diskMiB = 128 * 1024;
  return {
    code: index.toString(36).padStart(4, "0"),
    cores: size * 32,
    diskMiB,
    memory: { freeMiB: memoryMiB, totalMiB: memoryMiB },
    places: { used: 0, max: size * 80 },
    disk: { freeMiB: diskMiB },
    accelerator: "kvm",
    allowsEmulation: false,
    engine: { name: "engine", version: index % 20 === 7 ? "8.2" : "10.0" },
    cpu: null,
    cordoned: false,
    holds: new Map(),
    fetching: new Set(),
    load: 0,
  };
}

export function makeSnapshots({ snapshots }: Scenario, random: Random): SnapshotFacts[] {
  return Array.from({ length: snapshots }, (_, rank) => makeSnapshot(`s${rank}`, random, rank % 5 === 0 ? "10.0" : "8.2"));
}

export function makeSnapshot(id: string, random: Random, version: string): SnapshotFacts {
  const { median, sigma } = MODEL.snapshotMiB;
  const diskMiB = Math.round(Math.min(8192, logNormal(random, median, sigma)));
  return {
    id,
    base: null,
    memoryMiB: weighted(random, MODEL.memoryMiB) ?? 256,
    diskMiB,
    deltaMiB: diskMiB,
    inRegistry: true,
    engine: { name: "engine", version, exactVersion: false, accelerator: "kvm", cpu: null },
  };
}

export type Work = {
  gateway: number;
  snapshot: SnapshotFacts;
  /** of a live sandbox: where in the list of those that live; null: of a stored snapshot */
  live: number | null;
  deltaMiB: number;
  children: readonly { lifeMs: number; cores: number }[];
};

/** Draws the requests; it depends on the seed only, so that each policy gets the same ones */
export function workload(scenario: Scenario, snapshots: readonly SnapshotFacts[], random: Random): (burst: SnapshotFacts | null) => Work {
  const rank = zipf(snapshots.length, scenario.zipf);
  const { deltaMiB, coresPerSandbox, counts } = MODEL;
  return (burst) => {
    const [inBurst, isLive, live] = [random() < scenario.burstShare, random() < scenario.liveShare, random()];
    const ranked = snapshots[rank(random)];
    const snapshot = burst && inBurst ? burst : ranked;
    if (!snapshot) throw new Error("the scenario has no snapshots");
    const count = weighted(random, counts) ?? 1;
    return {
      gateway: Math.floor(random() * scenario.gateways),
      snapshot,
      live: isLive && snapshot !== burst ? live : null,
      deltaMiB: Math.round(logNormal(random, deltaMiB.median, deltaMiB.sigma)),
      children: Array.from({ length: count }, () => ({
        lifeMs: 1000 * logNormal(random, scenario.lifeMedianSecs, scenario.lifeSigma),
        cores: Math.min(8, logNormal(random, coresPerSandbox.median, coresPerSandbox.sigma)),
      })),
    };
  };
}

export function meanChildren(): number {
  const shares: readonly (readonly [number, number])[] = MODEL.counts;
  return shares.reduce((sum, [share, count]) => sum + share * count, 0) / shares.reduce((sum, [share]) => sum + share, 0);
}
