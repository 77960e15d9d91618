// Measures the rate of the guest's clock against the host's.

import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError } from "../errors.ts";
import { throwIfCancelled } from "../util/within.ts";
import type { AgentConnection } from "./wire/connection.ts";
import type { Reader } from "../util/codec.ts";
import { T } from "./wire/protocol.ts";

/** A shorter measurement is too inexact */
const SHORTEST_MS = 200;
const TOLERANCE = 0.01;
/** Interval between measurements of a sandbox in use */
const AGAIN_AFTER_MS = 30_000;
/** On a busy host answers take long, and only a long measurement is exact. One that is still inexact after this time is refused */
const LONGEST_MS = 60_000;
/** Number of requests; the fastest answer is used */
const LOOKS = 3;
const ANSWER_WITHIN_MS = 30_000;
/** Upper bound of a branch's wait for a guest that does not answer */
const RECHECK_WITHIN_MS = 2000;

/** The guest's monotonic clock, read between two moments of the host's clock */
export type ClockSample = { guestMs: number; fromMs: number; toMs: number };

/** Guest time per host time; 1 is correct. Answers take time, so only bounds are known */
export type ClockRate = { low: number; high: number; overMs: number };

/** The clock measurement stored in a snapshot */
export type ClockDrift = { driftPpm: number; overMs: number };

/** Requests the clock; undefined for an agent of an earlier version, whose answer is empty */
export async function sampleClock(agent: AgentConnection, timeoutMs: number = ANSWER_WITHIN_MS): Promise<ClockSample | undefined> {
  const fromMs = performance.now();
  const answer = await agent.call(T.PING, Buffer.alloc(0), { timeoutMs });
  return readSample(answer, fromMs);
}

/** @param fromMs time at which the request for this answer was sent */
export function readSample(answer: Reader, fromMs: number): ClockSample | undefined {
  return answer.isAtEnd ? undefined : { guestMs: Number(answer.u64()) / 1e6, fromMs, toMs: performance.now() };
}

function rateBetween(first: ClockSample, last: ClockSample): ClockRate {
  const guest = last.guestMs - first.guestMs;
  const shortest = last.fromMs - first.toMs;
  return {
    low: guest / (last.toMs - first.fromMs),
    high: shortest > 0 ? guest / shortest : Number.POSITIVE_INFINITY,
    overMs: Math.max(0, shortest),
  };
}

export function driftOf({ low, high, overMs }: ClockRate): ClockDrift {
  return { driftPpm: Math.round(((low + high) / 2 - 1) * 1e6), overMs: Math.round(overMs) };
}

/** The host's time */
export type HostTime = { now: () => number; sleep: (ms: number, signal: AbortSignal | undefined) => Promise<void> };

const HOST_TIME: HostTime = {
  now: () => performance.now(),
  sleep: async (ms, signal) => {
    // the caller checks for an abort
    await sleep(ms, undefined, { signal }).catch(() => undefined);
  },
};

export class GuestClock {
  readonly #look: (timeoutMs?: number) => Promise<ClockSample | undefined>;
  readonly #time: HostTime;
  /** the first sample since the VM was resumed, and the most exact one */
  #first: ClockSample | undefined;
  #exact: ClockSample | undefined;
  /** the last measurement that was exact enough for a verdict */
  #rate: ClockRate | undefined;
  #looking: Promise<unknown> | undefined;

  constructor(look: (timeoutMs?: number) => Promise<ClockSample | undefined>, first?: ClockSample, time: HostTime = HOST_TIME) {
    this.#look = look;
    this.#time = time;
    this.#first = first;
    this.#exact = first;
  }

  get rate(): ClockRate | undefined {
    return this.#rate;
  }

  get isWrong(): boolean {
    return this.#rate !== undefined && verdict(this.#rate) === "wrong";
  }

  /** The VM was paused, and its clock with it: a new measurement begins */
  restart(first?: ClockSample): void {
    this.#first = first;
    this.#exact = first;
  }

  /** Measures in the background when a measurement is due; never waits, never fails */
  glance(): void {
    const dueMs = (this.#exact?.toMs ?? Number.NEGATIVE_INFINITY) + (this.#rate ? AGAIN_AFTER_MS : SHORTEST_MS);
    if (this.#looking || this.#time.now() < dueMs) return;
    this.#looking = this.#look()
      .then((sample) => sample && this.#take(sample))
      .catch((error: unknown) => {
        // The current call reports a guest that ends or does not answer.
        if (!(error instanceof ForkdError)) throw error;
      })
      .finally(() => {
        this.#looking = undefined;
      });
  }

  /**
   * Before a freeze, because every fork inherits the clock. Waits until the rate is known; rejects with CLOCK_WRONG when it is off by
   * more than 1 %. undefined: the agent is of an earlier version and does not report its clock.
   */
  async check(signal?: AbortSignal): Promise<ClockDrift | undefined> {
    const deadline = this.#time.now() + LONGEST_MS;
    for (let pauseMs = SHORTEST_MS; ; pauseMs *= 1.5) {
      throwIfCancelled(signal);
      const sample = await this.#quickest();
      if (!sample) return undefined;
      const now = this.#take(sample);
      const known = now && verdict(now) !== "unknown" ? now : this.#rate;
      if (known && verdict(known) === "wrong") throw wrongClock(known);
      if (known) return driftOf(known);
      if (this.#time.now() + pauseMs > deadline) throw unknownClock(sample);
      await this.#time.sleep(pauseMs, signal);
    }
  }

  /**
   * Before a branch. The source's clock was checked before its snapshot was frozen, so this takes one sample and does not wait for a
   * long measurement. Rejects with CLOCK_WRONG when the rate is known to be off. undefined: there is no new measurement, or the guest
   * does not answer: a guest that hangs must still be branched for inspection.
   */
  async recheck(): Promise<ClockDrift | undefined> {
    let sample: ClockSample | undefined;
    try {
      sample = await this.#look(RECHECK_WITHIN_MS);
    } catch (error) {
      if (!(error instanceof ForkdError)) throw error;
    }
    const now = sample && this.#take(sample);
    const known = now && verdict(now) !== "unknown" ? now : this.#rate;
    if (known && verdict(known) === "wrong") throw wrongClock(known);
    return known && driftOf(known);
  }

  async #quickest(): Promise<ClockSample | undefined> {
    let best = await this.#look();
    for (let i = 1; i < LOOKS && best && widthOf(best) > SHORTEST_MS * TOLERANCE * 0.25; i++) {
      const next = await this.#look();
      if (next && widthOf(next) < widthOf(best)) best = next;
    }
    return best;
  }

  /** The rate up to this sample; undefined when the measurement is too short */
  #take(sample: ClockSample): ClockRate | undefined {
    const rates = [this.#first, this.#exact].flatMap((first) => (first ? rateBetween(first, sample) : []));
    this.#first ??= sample;
    if (!this.#exact || widthOf(sample) < widthOf(this.#exact) / 2) this.#exact = sample;
    const long = rates.filter(({ overMs }) => overMs >= SHORTEST_MS);
    if (long.length === 0) return undefined;
    const rate = {
      low: Math.max(...long.map(({ low }) => low)),
      high: Math.min(...long.map(({ high }) => high)),
      overMs: Math.max(...long.map(({ overMs }) => overMs)),
    };
    if (verdict(rate) !== "unknown") {
      this.#rate = rate;
      // start a new measurement from here
      this.restart(sample);
    }
    return rate;
  }
}

function widthOf({ fromMs, toMs }: ClockSample): number {
  return toMs - fromMs;
}

function verdict({ low, high }: ClockRate): "right" | "wrong" | "unknown" {
  if (low >= 1 - TOLERANCE && high <= 1 + TOLERANCE) return "right";
  return high < 1 - TOLERANCE || low > 1 + TOLERANCE ? "wrong" : "unknown";
}

/** For messages */
export function describeRate({ low, high, overMs }: ClockRate): string {
  const rate = (low + high) / 2;
  return `the guest's clock runs ${rate.toFixed(rate < 10 ? 3 : 1)} times as fast as the host's (measured over ${Math.round(overMs)} ms)`;
}

function wrongClock(rate: ClockRate): ForkdError {
  return new ForkdError("CLOCK_WRONG", `Cannot freeze the VM: ${describeRate(rate)}.`, { details: driftOf(rate) });
}

function unknownClock(sample: ClockSample): ForkdError {
  const why = `its answers take ${Math.round(widthOf(sample))} ms, so that ${LONGEST_MS / 1000} s were not enough to compare it with the host's`;
  return new ForkdError("CLOCK_WRONG", `Cannot freeze the VM: the rate of the guest's clock is not known: ${why}.`, {
    hint: "Try again when the host is less busy. No snapshot was made.",
  });
}
