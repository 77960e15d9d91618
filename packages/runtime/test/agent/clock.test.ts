// The measured rate of a guest's clock, for correct and for wrong clocks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejection } from "../../../../tests/helpers/guest.ts";
import { GuestClock, type ClockSample } from "../../src/agent/clock.ts";
import { ForkdError } from "../../src/errors.ts";

/** A host and a guest with simulated time */
class World {
  hostMs = 1000;
  guestMs = 77;
  looks = 0;
  readonly #rate: number;
  readonly #tripMs: () => number;

  /** @param rate rate of the guest's clock; tripMs: duration of a request, and of an answer */
  constructor(rate: number, tripMs: () => number = () => 0.3) {
    this.#rate = rate;
    this.#tripMs = tripMs;
  }

  pass(ms: number, rate = this.#rate): void {
    this.hostMs += ms;
    this.guestMs += ms * rate;
  }

  look = async (): Promise<ClockSample> => {
    this.looks++;
    const fromMs = this.hostMs;
    this.pass(this.#tripMs());
    const { guestMs } = this;
    this.pass(this.#tripMs());
    return { guestMs, fromMs, toMs: this.hostMs };
  };

  clock(first?: ClockSample): GuestClock {
    return new GuestClock(this.look, first, { now: () => this.hostMs, sleep: async (ms) => this.pass(ms) });
  }
}

/** A background measurement and its outcome */
async function glance(clock: GuestClock): Promise<void> {
  clock.glance();
  await new Promise((resolve) => void setImmediate(resolve));
}

test("a correct clock is measured over 200 ms, and its error is reported", async () => {
  for (const rate of [1, 0.9999, 1.005, 0.995]) {
    const world = new World(rate);
    const drift = await world.clock().check();
    assert.ok(drift && drift.overMs >= 200, `over ${drift?.overMs} ms`);
    assert.ok(Math.abs(drift.driftPpm - (rate - 1) * 1e6) < 5000, `${drift.driftPpm} ppm`);
  }
});

test("a clock that is off by more than 1 % is refused", async () => {
  for (const rate of [12, 2, 1.03, 0.97, 0.5, 1 / 12, 0]) {
    const { message, details } = await rejection(new World(rate).clock().check(), "CLOCK_WRONG");
    assert.match(message, /times as fast as the host's/, `${rate}`);
    assert.ok(Math.abs(Number(details?.["driftPpm"]) / 1e6 + 1 - rate) < 0.05 * Math.max(1, rate), `${rate}: ${message}`);
  }
});

test("an old sample makes the measurement exact at once", async () => {
  const world = new World(1.02);
  const clock = world.clock(await world.look());
  world.pass(5000);
  const before = world.hostMs;
  await rejection(clock.check(), "CLOCK_WRONG");
  assert.ok(world.hostMs - before < 5, "it did not wait");
});

test("slow and asymmetric answers do not change the verdict", async () => {
  let seed = 42;
  const random = (): number => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (let round = 0; round < 50; round++) {
    const tripMs = (): number => (random() < 0.3 ? 60 * random() : random());
    assert.ok(await new World(1.002, tripMs).clock().check());
    await rejection(new World(1.03, tripMs).clock().check(), "CLOCK_WRONG");
    await rejection(new World(0.97, tripMs).clock().check(), "CLOCK_WRONG");
  }
});

test("a clock that cannot be measured is refused, with the reason", async () => {
  const { message } = await rejection(new World(1, () => 2000).clock().check(), "CLOCK_WRONG");
  assert.match(message, /is not known: its answers take 4000 ms/);
});

test("a pause of the VM is not taken for a slow clock, and needs no further wait", async () => {
  const world = new World(1);
  const clock = world.clock(await world.look());
  world.pass(1000);
  assert.ok(await clock.check());
  for (let i = 0; i < 3; i++) {
    world.pass(3000, 0);
    clock.restart(await world.look());
    const before = world.hostMs;
    assert.ok(await clock.check());
    assert.ok(world.hostMs - before < 5, "it did not wait");
  }
});

test("a clock that becomes wrong after a pause is noticed", async () => {
  const world = new World(1);
  const clock = world.clock();
  await clock.check();
  clock.restart(await world.look());
  world.pass(1000, 1.5);
  await rejection(clock.check(), "CLOCK_WRONG");
});

test("a branch does not wait: the known rate decides, also for a guest that does not answer", async () => {
  const early = new World(12);
  assert.equal(await early.clock(await early.look()).recheck(), undefined);
  assert.ok(early.hostMs < 1005, "it did not wait");
  const late = new World(12);
  const clock = late.clock(await late.look());
  late.pass(1000);
  await rejection(clock.recheck(), "CLOCK_WRONG");
  const silent = new GuestClock(async () => Promise.reject(new ForkdError("AGENT_TIMEOUT", "It does not answer.")));
  assert.equal(await silent.recheck(), undefined);
});

test("the background measurement runs until the rate is known", async () => {
  for (const [rate, wrong] of [
    [1, false],
    [12, true],
  ] as const) {
    const world = new World(rate);
    const clock = world.clock(await world.look());
    await glance(clock);
    assert.equal(world.looks, 1, "too early to look");
    for (let i = 0; i < 20; i++) {
      world.pass(300);
      await glance(clock);
    }
    assert.equal(clock.isWrong, wrong);
    assert.ok(clock.rate);
    assert.ok(world.looks < 5, `${world.looks} looks`);
  }
});

test("a clock that becomes wrong in a sandbox in use is noticed, after any time", async () => {
  const world = new World(1);
  const clock = world.clock(await world.look());
  for (let i = 0; i < 100; i++) {
    world.pass(60_000);
    await glance(clock);
  }
  assert.equal(clock.isWrong, false);
  world.pass(60_000, 1.05);
  await glance(clock);
  assert.equal(clock.isWrong, true);
});

test("a background measurement of a guest that does not answer does not fail", async () => {
  const clock = new GuestClock(async () => Promise.reject(new ForkdError("AGENT_LOST", "gone")));
  await glance(clock);
  assert.equal(clock.rate, undefined);
});

test("an agent without a clock report passes, without a measurement", async () => {
  assert.equal(await new GuestClock(async () => undefined).check(), undefined);
});

test("an abort ends the wait", async () => {
  await rejection(new World(1).clock().check(AbortSignal.abort(new Error("enough"))), "CANCELLED");
});
