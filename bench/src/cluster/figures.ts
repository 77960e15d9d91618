// What the simulation counts.

import { fullness } from "@forkd/gateway/placement/fullness";
import { percentiles, round } from "../stats.ts";

import type { SimNode, Sandbox } from "./node.ts";
import type { Scenario } from "./scenario.ts";
import type { Transfers } from "./transfers.ts";

/** Seconds of one point of the curves */
const STEP_SECS = 5;

export type PolicyFigures = {
  policy: string;
  forks: number;
  /** share of the forks whose node held the snapshot, or the live sandbox */
  locality: number;
  wait_ms: { p50: number; p90: number; p99: number };
  /** during the measured time, and with the warm-up */
  moved_gib: number;
  moved_gib_in_all: number;
  /** how full the nodes are, by what each has least of: the mean, and the 99th percentile and the fullest against it */
  load: { mean: number; p99_to_mean: number; max_to_mean: number };
  /** nodes that refused or did not answer */
  refusals: number;
  /** forks that no candidate took */
  failed: number;
  /** sandboxes that ended with their node */
  lost: number;
  moved_by_drains: number;
  alive_at_end: number;
  /** one point for each 5 s of the run, the warm-up included: 99th percentile of the wait */
  curve: { secs: number; p99_wait_ms: number }[];
  /** load of the nodes at the end, 0th to 100th percentile */
  loads: number[];
};

export class Figures {
  readonly #scenario: Scenario;
  readonly #nodes: readonly SimNode[];
  readonly #transfers: Transfers;
  readonly #waits: number[] = [];
  readonly #curve: number[][] = [];
  readonly #samples: { mean: number; p99: number; max: number }[] = [];
  #forks = 0;
  #local = 0;
  #refusals = 0;
  #failed = 0;
  #lost = 0;
  #moves = 0;
  #movedBefore = 0;

  constructor(scenario: Scenario, nodes: readonly SimNode[], transfers: Transfers) {
    this.#scenario = scenario;
    this.#nodes = nodes;
    this.#transfers = transfers;
  }

  placed(nowMs: number, count: number, isLocal: boolean): void {
    if (!this.#counts(nowMs)) return;
    this.#forks += count;
    if (isLocal) this.#local += count;
  }

  started({ askedMs, lostMs, isMove }: Sandbox, nowMs: number): void {
    if (isMove) {
      this.#moves++;
      return;
    }
    const waitMs = nowMs - askedMs + lostMs;
    if (this.#counts(askedMs)) this.#waits.push(waitMs);
    const step = Math.floor(askedMs / 1000 / STEP_SECS);
    (this.#curve[step] ??= []).push(waitMs);
  }

  refusal(nowMs: number): void {
    if (this.#counts(nowMs)) this.#refusals++;
  }

  failed(nowMs: number, count: number): void {
    if (this.#counts(nowMs)) this.#failed += count;
  }

  lost(count: number): void {
    this.#lost += count;
  }

  /** Once a second */
  sample(nowMs: number): void {
    if (nowMs === this.#scenario.warmUpSecs * 1000) this.#movedBefore = this.#transfers.miB;
    if (!this.#counts(nowMs)) return;
    const loads = this.#loads();
    const mean = loads.reduce((sum, load) => sum + load, 0) / loads.length;
    this.#samples.push({ mean, p99: loads[Math.floor(0.99 * (loads.length - 1))] ?? 0, max: loads.at(-1) ?? 0 });
  }

  result(policy: string, alive: number): PolicyFigures {
    const mean = (of: (sample: { mean: number; p99: number; max: number }) => number): number =>
      this.#samples.reduce((sum, sample) => sum + of(sample), 0) / this.#samples.length;
    const loads = this.#loads();
    return {
      policy,
      forks: this.#forks,
      locality: Math.round((this.#local / this.#forks) * 1e4) / 1e4,
      wait_ms: percentiles(this.#waits),
      moved_gib: round((this.#transfers.miB - this.#movedBefore) / 1024),
      moved_gib_in_all: round(this.#transfers.miB / 1024),
      load: {
        mean: round(mean((sample) => sample.mean)),
        p99_to_mean: round(mean((sample) => sample.p99 / sample.mean)),
        max_to_mean: round(mean((sample) => sample.max / sample.mean)),
      },
      refusals: this.#refusals,
      failed: this.#failed,
      lost: this.#lost,
      moved_by_drains: this.#moves,
      alive_at_end: alive,
      curve: this.#curve.map((waits, step) => ({ secs: step * STEP_SECS, p99_wait_ms: percentiles(waits).p99 })),
      loads: Array.from({ length: 101 }, (_, percent) => round(loads[Math.round((percent / 100) * (loads.length - 1))] ?? 0)),
    };
  }

  #counts(ms: number): boolean {
    return ms >= this.#scenario.warmUpSecs * 1000;
  }

  /** Of the nodes that take forks, ascending */
  #loads(): number[] {
    return this.#nodes
      .filter(({ facts }) => !facts.cordoned)
      .map(({ facts }) => fullness(facts))
      .sort((a, b) => a - b);
  }
}
