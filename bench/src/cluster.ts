// Placement on many nodes: a seeded simulation that runs the gateway's own placement code, compared with two others.

import { setImmediate } from "node:timers/promises";
import { comparisonPlot, loadPlot, waitPlot } from "./cluster/plots.ts";
import { POLICIES } from "./cluster/policies.ts";
import { FULL, meanChildren, MODEL, scaled, type Scenario } from "./cluster/scenario.ts";
import { simulate } from "./cluster/simulation.ts";
import { atLeast, atMost, type Goal } from "./goals.ts";
import { describeHost, type Host } from "./machine.ts";
import { round } from "./stats.ts";

import type { PolicyFigures } from "./cluster/figures.ts";
import type { BenchOptions } from "./setup.ts";

export type ClusterReport = {
  machine: Host;
  method: string;
  seed: number;
  scenario: Scenario;
  policies: PolicyFigures[];
  goals: Goal[];
  /** of all simulations together */
  took_secs: number;
};

export async function benchCluster(opts: BenchOptions & { nodes: number; seed: number; secs?: number }): Promise<ClusterReport> {
  const { nodes, seed, secs, progress, signal } = opts;
  const sized = nodes === FULL.nodes ? FULL : scaled(nodes);
  const scenario = { ...sized, secs: secs ?? sized.secs };
  const began = performance.now();
  const policies: PolicyFigures[] = [];
  for (const policy of POLICIES) {
    progress({ step: `Placement: ${policy.name}` });
    // shows the step, and lets a signal in
    await setImmediate();
    signal.throwIfAborted();
    policies.push(simulate(policy, scenario, seed));
  }
  return {
    machine: describeHost(),
    method: methodOf(scenario),
    seed,
    scenario,
    policies,
    goals: goalsOf(policies),
    took_secs: round((performance.now() - began) / 1000),
  };
}

/** Name of the file, and its text */
export function clusterPlots({ policies, scenario, seed }: ClusterReport): Record<string, string> {
  const { nodes, forksPerMinute, snapshots } = scenario;
  const count = (value: number): string => value.toLocaleString("en-US");
  const subtitle = `simulation: ${count(nodes)} nodes, ${count(forksPerMinute)} forks a minute, ${count(snapshots)} snapshots, seed ${seed}`;
  return {
    "cluster-compared.svg": comparisonPlot(policies, subtitle),
    "cluster-wait.svg": waitPlot(policies, scenario, subtitle),
    "cluster-load.svg": loadPlot(policies, subtitle),
  };
}

function goalsOf(policies: readonly PolicyFigures[]): Goal[] {
  const named = (name: string): PolicyFigures => {
    const found = policies.find(({ policy }) => policy === name);
    if (!found) throw new Error(`no policy ${name}`);
    return found;
  };
  const [own, calm, random, even] = [named("forkd"), named("forkd, no spreading"), named("random"), named("least loaded, now")];
  return [
    atLeast("forks on a node with the snapshot", round(own.locality * 100), 95, "%"),
    atMost("sent, of what random placement sends", round((100 * own.moved_gib) / random.moved_gib), 10, "%"),
    atMost("wait p99, of that without spreading", round((100 * own.wait_ms.p99) / calm.wait_ms.p99), 100, "%"),
    atMost("fullest node, of that with least loaded, now", round((100 * own.load.max_to_mean) / even.load.max_to_mean), 125, "%"),
    atMost("forks that failed", own.failed, 0, ""),
  ];
}

function methodOf(scenario: Scenario): string {
  const { median: snapshotMiB, sigma: snapshotSigma } = MODEL.snapshotMiB;
  return [
    `discrete-event simulation of ${scenario.nodes} nodes, ${scenario.forksPerMinute} forks per minute, ${scenario.secs} simulated seconds after ${scenario.warmUpSecs} s of warm-up; no VM runs`,
    "each policy gets the same requests, failures and drains, drawn from the seed",
    `requests for 1, 8 or 64 children (90, 9 and 1 %; mean ${round(meanChildren())}), ${100 * scenario.liveShare} % of them of a live sandbox; lives log-normal, median ${scenario.lifeMedianSecs} s, sigma ${scenario.lifeSigma}`,
    `${scenario.snapshots} snapshots, popularity by Zipf with exponent ${scenario.zipf}, sizes log-normal, median ${snapshotMiB} MiB, sigma ${snapshotSigma}; each on ${scenario.replicas} nodes at first`,
    `${scenario.burstShare * 100} % of the forks go to a new snapshot, which one node holds, for ${scenario.burstSecs} s`,
    `${scenario.gateways} gateways see a report of each node every ${scenario.reportEveryMs} ms, ${scenario.reportDelayMs} ms old on arrival`,
    `a node dies every ${scenario.failEverySecs} s, one is drained every ${scenario.drainEverySecs} s, each returns after ${scenario.downSecs} s`,
    `transfers at ${MODEL.transferMiBPerSec} MiB/s, ${MODEL.receiving} in and ${MODEL.sending} out of a node at a time; a start takes ${MODEL.startMs.warm} ms warm and ${MODEL.startMs.disk} ms from disk`,
  ].join("; ");
}
