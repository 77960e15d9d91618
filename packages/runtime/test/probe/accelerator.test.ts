// When KVM is tried, and how long the result is kept.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { resolveHome } from "../../src/home.ts";
import { askedAccelerator, probeAccelerator, type ProbeOptions } from "../../src/probe/accelerator.ts";
import { fakeInstalled } from "../../../../tests/helpers/fake-engine.ts";
import type { AcceleratorChoice } from "../../src/vmm/driver.ts";
import type { KvmFacts } from "../../src/probe/kvm-advice.ts";

const FACTS: KvmFacts = { device: "open", group: "kvm", gid: 106, user: "ada", isContainer: false, isGuest: false, extension: "vmx" };
const HOUR_MS = 3600_000;

type Host = { facts: KvmFacts; fail: Error | undefined; freezeObstacle: string | null; now: number; tried: number };

async function prober(
  t: TestContext,
  host: Partial<Host> = {},
): Promise<{ host: Host; probe: (opts?: Partial<ProbeOptions>) => Promise<AcceleratorChoice>; cache: string }> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-probe-"));
  t.after(async () => rm(dir, { recursive: true }));
  const home = resolveHome({ FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run") });
  const state: Host = { facts: FACTS, fail: undefined, freezeObstacle: null, now: 1_000_000, tried: 0, ...host };
  const opts = {
    engine: fakeInstalled(),
    guestKernel: { id: "k1", release: "6.12", vmlinuz: "/k/vmlinuz", initrd: "/k/initrd", diskInitrd: null },
    warden: "/f/warden",
    confinement: { kind: "namespaces", reason: null, calls: { filter: "deny", reason: "not known" } },
    host: {
      look: async () => state.facts,
      now: () => state.now,
      cpu: async () => ({ cpu: "Haswell-v4", vendor: "GenuineIntel", features: ["avx2"] }),
      try: async () => {
        state.tried++;
        if (state.fail) throw state.fail;
        return { freezeObstacle: state.freezeObstacle };
      },
    },
  } satisfies ProbeOptions;
  return { host: state, cache: home.cache, probe: async (more = {}) => probeAccelerator(home, { ...opts, ...more }) };
}

describe("the probe of KVM", () => {
  test("stores a success until the next boot of the host", async (t) => {
    const { host, probe } = await prober(t);
    assert.equal((await probe()).accelerator, "kvm");
    host.now += 1000 * HOUR_MS;
    const kept = { accelerator: "kvm", reason: "a guest booted, forked and branched with KVM", freezeObstacle: null };
    assert.deepEqual(await probe(), kept);
    assert.equal(host.tried, 1);
  });

  test("says why branches cannot be taken from a frozen copy, and uses KVM", async (t) => {
    const { probe } = await prober(t, { freezeObstacle: "a page differs" });
    for (const choice of [await probe(), await probe()]) {
      assert.equal(choice.accelerator, "kvm");
      assert.equal(choice.freezeObstacle, "a page differs");
    }
  });

  test("stores a failure for an hour, with its reason and advice", async (t) => {
    const { host, probe } = await prober(t, { fail: new Error("the guest is silent. Its console ended with: panic") });
    const first = await probe();
    assert.equal(first.accelerator, "tcg");
    assert.match(first.reason, /fails: the guest is silent\. Its console ended with: panic$/);
    assert.match(first.advice ?? "", /VirtualBox/);
    host.now += HOUR_MS - 1;
    assert.deepEqual(await probe(), first);
    assert.equal(host.tried, 1);
    host.now += 1;
    host.fail = undefined;
    assert.equal((await probe()).accelerator, "kvm");
    assert.equal(host.tried, 2);
  });

  test("is repeated for another engine, and on request", async (t) => {
    const { host, probe } = await prober(t);
    await probe();
    await probe({ engine: fakeInstalled({ fingerprint: "2.0" }) });
    assert.equal(host.tried, 2);
    host.fail = new Error("no");
    assert.equal((await probe({ fresh: true })).accelerator, "tcg");
    assert.equal(host.tried, 3);
  });

  test("stores its result for this boot of the host only", async (t) => {
    const { probe, cache } = await prober(t);
    await probe();
    const { key } = JSON.parse(await readFile(`${cache}/accelerator-namespaces.json`, "utf8")) as { key: string };
    assert.ok(key.includes((await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim()));
  });

  test("that cannot start results in tcg, and the daemon starts", async (t) => {
    const refused = Object.assign(new Error("EPERM: cannot mount /dev/kvm"), { code: "EPERM" });
    const { probe } = await prober(t, { fail: refused });
    const { accelerator, reason } = await probe();
    assert.equal(accelerator, "tcg");
    assert.match(reason, /cannot mount \/dev\/kvm/);
  });

  test("is aborted by the signal", async (t) => {
    const { probe, host } = await prober(t, { fail: new Error("cancelled") });
    await assert.rejects(probe({ signal: AbortSignal.abort(new Error("enough")) }), /enough/);
    host.fail = undefined;
    assert.equal((await probe()).accelerator, "kvm");
  });

  for (const [device, reason] of [
    ["missing", "there is no /dev/kvm"],
    ["denied", "this user may not open /dev/kvm"],
  ] as const)
    test(`tries nothing where the device is ${device}`, async (t) => {
      const { host, probe } = await prober(t, { facts: { ...FACTS, device } });
      const choice = await probe();
      assert.equal(choice.accelerator, "tcg");
      assert.equal(choice.reason, reason);
      assert.notEqual(choice.advice, undefined);
      assert.equal(host.tried, 0);
    });
});

describe("a configured accelerator", () => {
  test("is used without a probe", async () => {
    const look = async (): Promise<KvmFacts> => FACTS;
    assert.deepEqual(await askedAccelerator("tcg", look), { accelerator: "tcg", reason: "the setting accelerator is tcg" });
    assert.deepEqual(await askedAccelerator("kvm", look), { accelerator: "kvm", reason: "the setting accelerator is kvm" });
  });

  test("comes with the advice if the device cannot be opened", async () => {
    const choice = await askedAccelerator("kvm", async () => ({ ...FACTS, device: "denied" }));
    assert.match(choice.reason, /is kvm, but this user may not open \/dev\/kvm/);
    assert.equal(choice.advice, "sudo usermod -aG kvm ada, then log in again");
  });
});
