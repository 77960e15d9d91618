// Guest clocks match the host, even after a boot while all CPUs are busy; a wrong clock is not snapshotted.
// Runs alone: it takes all CPUs.

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { availableParallelism } from "node:os";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { rejection, sh, value } from "../helpers/guest.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";
import { PYTHON_IMAGE, startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox } from "@forkd/runtime";

const HOGS_PER_CPU = 2;
const TOLERANCE = 0.01;

/** Changes the rate of the guest kernel's clocks: 10000 is the correct tick */
function bendClock(tick: number): string[] {
  const code = `import ctypes
timex = (ctypes.c_long * 32)()
timex[0], timex[11] = 0x4000, ${tick}
libc = ctypes.CDLL(None, use_errno=True)
assert libc.adjtimex(timex) >= 0, ctypes.get_errno()`;
  return ["python3", "-c", code];
}

type Look = { guestMs: number; fromMs: number; toMs: number };

/** Reads the interpreter's clock, which is independent of the tested mechanism */
async function look(sandbox: Sandbox): Promise<Look> {
  const fromMs = performance.now();
  const guestMs = (await value(sandbox, "__import__('time').monotonic()")) as number;
  return { guestMs: guestMs * 1000, fromMs, toMs: performance.now() };
}

/** Asserts that guest and host clocks have the same rate; samples until the error bound is small enough */
async function assertHostsRate(sandbox: Sandbox): Promise<void> {
  await look(sandbox);
  const first = await look(sandbox);
  for (;;) {
    await sleep(500);
    const last = await look(sandbox);
    const guest = last.guestMs - first.guestMs;
    const rates = [guest / (last.toMs - first.fromMs), guest / (last.fromMs - first.toMs)] as const;
    assert.ok(rates[0] < 1 + TOLERANCE && rates[1] > 1 - TOLERANCE, `the guest's clock runs ${rates.join(" to ")} times as fast`);
    if (rates[0] > 1 - TOLERANCE && rates[1] < 1 + TOLERANCE) return;
    assert.ok(last.toMs - first.toMs < patience(), "the answers never became exact enough");
  }
}

describe("a snapshot made while programs use all CPUs", () => {
  const hogs: ChildProcess[] = [];
  let vm: TestVm;

  before(async () => {
    for (let i = 0; i < availableParallelism() * HOGS_PER_CPU; i++)
      hogs.push(spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" }));
    vm = await startVm("clock-busy", { code: "import time" });
  });
  after(async () => {
    for (const hog of hogs) hog.kill("SIGKILL");
    await vm?.close();
  });

  it("reports how exact its clock is", () => {
    const { clock } = vm.snapshot.manifest;
    assert.ok(clock && clock.overMs >= 200 && Math.abs(clock.driftPpm) <= TOLERANCE * 1e6, JSON.stringify(clock));
  });

  it("has forks, and forks of a branch, whose clock runs at the host's rate", async () => {
    const child = await vm.fork();
    const { clock_drift_ppm: stated, clock_measured: where } = child.certificate;
    assert.deepEqual([stated, where], [vm.snapshot.manifest.clock?.driftPpm, "snapshot"]);
    await assertHostsRate(child);
    const { snapshot } = await vm.runtime.branch(child, `${vm.tag}-b`);
    // Each use samples the clock; on a busy host several samples are needed.
    await until(async () => {
      await value(child, "1");
      return child.certificate.clock_measured === "sandbox";
    });
    const own = child.certificate;
    assert.ok(Math.abs(own.clock_drift_ppm ?? 1e6) <= TOLERANCE * 1e6, JSON.stringify(own));
    assert.ok(snapshot.manifest.clock);
    await assertHostsRate(child);
    await assertHostsRate(await vm.fork(snapshot));
  });

  it("uses a clock source with a stated frequency, not a calibrated one", async () => {
    const child = await vm.fork();
    const source = await sh(child, "cat /sys/devices/system/clocksource/clocksource0/current_clocksource");
    assert.equal(source, child.isolation === "kvm" ? "kvm-clock" : "hpet");
  });
});

describe("a guest whose clock is wrong", () => {
  let vm: TestVm;
  before(async () => {
    vm = await startVm("clock-wrong", { code: "import time" });
  });
  after(async () => vm.close());

  it("gets its clock set periodically, except while it is paused", async () => {
    const child = await vm.fork();
    const wrongBy = async (): Promise<number> => Math.abs(Number(await sh(child, "date +%s")) - Date.now() / 1000);
    await sh(child, "date -s @1000000000");
    assert.ok((await wrongBy()) > 1e6);
    await child.keepClock();
    assert.ok((await wrongBy()) < 60);
    await child.pause();
    await child.keepClock();
    await child.resume();
    await child.kill();
  });

  it("is not frozen after its boot", async () => {
    const { runtime } = vm;
    const tag = `${vm.tag}-w`;
    const warmUp = { exec: [bendClock(11_000), ["sleep", "5"]] };
    const { message, hint } = await rejection(runtime.createSnapshot({ tag, image: PYTHON_IMAGE, warmUp }), "CLOCK_WRONG");
    assert.match(message, /clock runs 1\.\d+ times as fast as the host's/);
    assert.match(hint, /No snapshot was made/);
    await rejection(runtime.forkOne(tag), "NOT_FOUND");
  });

  it("is not branched, continues to run, and its certificate reports the clock", async () => {
    const child = await vm.fork();
    assert.equal((await child.exec(bendClock(9000))).code, 0);
    // starts a new measurement interval
    await child.setClock();
    // Longer than the shortest valid interval, even by the guest's slow clock.
    await sh(child, "sleep 1");
    const tag = `${vm.tag}-b`;
    await rejection(vm.runtime.branch(child, tag), "CLOCK_WRONG");
    await rejection(vm.runtime.forkOne(tag), "NOT_FOUND");
    const { clock_drift_ppm: drift, clock_measured: where } = child.certificate;
    assert.equal(where, "sandbox");
    assert.ok(drift !== null && drift < -50_000, `${drift} ppm`);
    assert.equal(await value(child, "1 + 1"), 2);
  });
});
