// Forks, branches and memory of the last hour, in samples of fixed length. Bounded: old samples are dropped.

import type { History as Shown } from "../api/daemon.ts";

export const STEP_SECS = 10;
const MAX_SAMPLES = 3600 / STEP_SECS;

type Sample = Shown["samples"][number] & { forkCounts: number[]; pauseCounts: number[] };
type Level = Pick<Sample, "sandboxes" | "guest_bytes" | "private_bytes">;

export class History {
  readonly #boundsMs: readonly number[];
  readonly #samples: Sample[] = [];
  #forkCounts: number[];
  #pauseCounts: number[];

  constructor(boundsMs: readonly number[]) {
    this.#boundsMs = boundsMs;
    this.#forkCounts = this.#zeros();
    this.#pauseCounts = this.#zeros();
  }

  forked(ms: number): void {
    this.#count(this.#forkCounts, ms);
  }

  branched(pauseMs: number): void {
    this.#count(this.#pauseCounts, pauseMs);
  }

  /** Ends the current sample */
  sample(level: Level, nowMs: number): void {
    const [forkCounts, pauseCounts] = [this.#forkCounts, this.#pauseCounts];
    this.#forkCounts = this.#zeros();
    this.#pauseCounts = this.#zeros();
    const counted = { forks: sum(forkCounts), branches: sum(pauseCounts), forkCounts, pauseCounts };
    this.#samples.push({ time_unix: Math.floor(nowMs / 1000), ...counted, ...level });
    if (this.#samples.length > MAX_SAMPLES) this.#samples.shift();
  }

  show(): Shown {
    const add = (total: number[], counts: number[]): number[] => total.map((count, at) => count + (counts[at] ?? 0));
    return {
      step_secs: STEP_SECS,
      samples: this.#samples.map(({ forkCounts: _forks, pauseCounts: _pauses, ...sample }) => sample),
      bounds_ms: [...this.#boundsMs],
      fork_counts: this.#samples.reduce((total, { forkCounts }) => add(total, forkCounts), this.#forkCounts),
      pause_counts: this.#samples.reduce((total, { pauseCounts }) => add(total, pauseCounts), this.#pauseCounts),
    };
  }

  #zeros(): number[] {
    return Array<number>(this.#boundsMs.length + 1).fill(0);
  }

  #count(counts: number[], ms: number): void {
    const at = this.#boundsMs.findIndex((bound) => ms <= bound);
    const bucket = at < 0 ? this.#boundsMs.length : at;
    counts[bucket] = (counts[bucket] ?? 0) + 1;
  }
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
