// Choice of a machine's CPU. fixtures/ has the replies of QEMU 7.2.22 with each accelerator on one host, without
// properties that are false.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { BASELINE_CPU } from "../../src/vmm/qemu/args.ts";
import { findQemu } from "../../src/vmm/qemu/binary.ts";
import { qemuCapabilities, readCapabilities, type Capabilities } from "../../src/vmm/qemu/capabilities.ts";
import { checkCompatible } from "../../src/vmm/compatible.ts";
import { refusalOf, type CompatibleHost } from "../../src/vmm/qemu/compatible.ts";
import { chooseCpu, cpuRefusal, featuresOf } from "../../src/vmm/qemu/cpu-model.ts";
import type { MachineShape } from "../../src/vmm/driver.ts";
import kvm from "./fixtures/cpus-kvm.json" with { type: "json" };
import tcg from "./fixtures/cpus-tcg.json" with { type: "json" };

const HERE = readCapabilities(new Map(Object.entries(kvm)), "kvm", "qemu");
const EMULATED = readCapabilities(new Map(Object.entries(tcg)), "tcg", "qemu");

/** A host whose processor has all features of these models */
function hostWith(vendor: string, ...models: string[]): Capabilities {
  return { ...HERE, vendor, offered: new Set(models.flatMap((model) => HERE.features.get(model) ?? [])) };
}

describe("QEMU's description of CPUs", () => {
  test("has vendor, features and portability", () => {
    assert.equal(HERE.vendor, "AuthenticAMD");
    assert.ok(HERE.offered.has("sse2"));
    assert.ok(HERE.features.get("Haswell-v4")?.includes("avx2"));
    assert.ok(!HERE.features.get("Nehalem-v1")?.includes("avx"));
    assert.equal(HERE.cpus.get("host")?.isPortable, false);
    assert.equal(HERE.cpus.get("Haswell-v4")?.isPortable, true);
    assert.equal(HERE.features.has("EPYC-Genoa-v1"), false);
  });

  test("counts a feature once, and no switches of QEMU", () => {
    const props = { "sse4.1": true, "sse4-1": true, sse4_1: true, avx: false, check: true, migratable: true, "x-vendor-cpuid-only": true };
    assert.deepEqual(featuresOf({ ...props, vendor: "GenuineIntel", "min-level": 4 }), ["sse4-1"]);
  });

  test("has no virtualisation for guests", () => {
    for (const features of HERE.features.values()) for (const name of ["svm", "npt", "vmx"]) assert.ok(!features.includes(name), name);
  });

  test("that is missing is an error", () => {
    assert.throws(() => readCapabilities(new Map(), "kvm", "/q"), { code: "HOST_COMMAND_FAILED", message: /\/q does not list/ });
  });

  test("that is malformed is an error too, and does not end the daemon", async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "forkd-cpus-"));
    t.after(async () => rm(dir, { recursive: true }));
    const qemu = join(dir, "qemu");
    await writeFile(qemu, "#!/bin/sh\necho 'warning: not JSON'\necho null\n", { mode: 0o755 });
    await assert.rejects(qemuCapabilities(qemu, "kvm"), { code: "HOST_COMMAND_FAILED", message: /does not list/ });
  });

  test("is complete when it is read slowly", async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "forkd-cpus-"));
    t.after(async () => rm(dir, { recursive: true }));
    const { path } = await findQemu();
    const slow = join(dir, "qemu");
    // The replies are longer than a pipe holds
    await writeFile(slow, `#!/bin/sh\n'${path}' "$@" | { sleep 1; cat; }\n`, { mode: 0o755 });
    const { features } = await qemuCapabilities(slow, "tcg");
    assert.deepEqual(features, (await qemuCapabilities(path, "tcg")).features);
    assert.ok(features.has(BASELINE_CPU));
  });
});

describe("the CPU of a new machine", () => {
  test("with KVM is the newest model that the host supports fully, with vendor and features", () => {
    const intel = chooseCpu(undefined, "kvm", hostWith("GenuineIntel", "Haswell-v4", "Nehalem-v1"));
    assert.equal(intel.cpu, "Haswell-v4");
    assert.equal(intel.vendor, "GenuineIntel");
    assert.deepEqual(intel.features, HERE.features.get("Haswell-v4"));
    assert.equal(chooseCpu(undefined, "kvm", hostWith("GenuineIntel", "Icelake-Server-v6", "Haswell-v4")).cpu, "Icelake-Server-v6");
    assert.equal(chooseCpu(undefined, "kvm", hostWith("AuthenticAMD", "EPYC-v3", "EPYC-v2")).cpu, "EPYC-v3");
  });

  test("of an AMD host without a complete AMD model is a complete Intel model", () => {
    assert.equal(chooseCpu(undefined, "kvm", hostWith("AuthenticAMD", "SandyBridge-v2", "Nehalem-v1")).cpu, "SandyBridge-v2");
  });

  test("of an Intel host is never an AMD model, even a complete one", () => {
    const both = hostWith("GenuineIntel", "EPYC-Rome-v2", "EPYC-v3", "EPYC-v2", "Haswell-v4");
    assert.equal(chooseCpu(undefined, "kvm", both).cpu, "Haswell-v4");
  });

  test("is an error where even the baseline is incomplete, with the missing features", () => {
    assert.throws(() => chooseCpu(undefined, "kvm", HERE), { code: "CPU_UNAVAILABLE", message: /Nehalem-v1 .*lacks .*popcnt.*sse4-2/ });
  });

  test("can be the baseline, a named model, or everything that the host has", () => {
    const host = hostWith("GenuineIntel", "Haswell-v4", "Nehalem-v1");
    assert.equal(chooseCpu("baseline", "kvm", host).cpu, "Nehalem-v1");
    assert.deepEqual(chooseCpu("baseline", "kvm", host).features, HERE.features.get("Nehalem-v1"));
    assert.equal(chooseCpu("SandyBridge-v2", "kvm", hostWith("GenuineIntel", "Haswell-v4", "SandyBridge-v2")).cpu, "SandyBridge-v2");
    const whole = chooseCpu("host", "kvm", host);
    assert.equal(whole.cpu, "host");
    assert.deepEqual(whole.features, [...host.offered].toSorted());
  });

  for (const [what, asked, why] of [
    ["a model that QEMU does not have", "no-such-cpu", /no such model/],
    ["a model of which the host lacks something", "Icelake-Server-v6", /lacks .*avx512f/],
  ] as const)
    test(`cannot be ${what}`, () => {
      assert.throws(() => chooseCpu(asked, "kvm", hostWith("GenuineIntel", "Haswell-v4")), { code: "CPU_UNAVAILABLE", message: why });
    });

  test("emulated is the baseline, and no property of the host is recorded", () => {
    assert.deepEqual(chooseCpu(undefined, "tcg", EMULATED), { cpu: "Nehalem-v1" });
    assert.deepEqual(chooseCpu("baseline", "tcg", EMULATED), { cpu: "Nehalem-v1" });
    assert.throws(() => chooseCpu("host", "tcg", EMULATED), { code: "CPU_UNAVAILABLE", message: /emulated/ });
    assert.throws(() => chooseCpu("Haswell-v4", "tcg", EMULATED), { code: "CPU_UNAVAILABLE", message: /lacks .*pcid/ });
  });
});

describe("a host that forks a snapshot", () => {
  const shape: MachineShape = {
    engine: "qemu",
    engineVersion: "7.2.22",
    machine: "pc-q35-7.2",
    cpu: "Haswell-v4",
    vendor: "GenuineIntel",
    features: ["avx", "avx2"],
    accelerator: "kvm",
    vcpus: 1,
    memoryMiB: 512,
  };
  const host = (cpu: CompatibleHost["cpu"]): CompatibleHost => ({ qemuVersion: "7.2.22", accelerator: "kvm", reason: "it works", cpu });

  test("must have its vendor and all its features, by name", () => {
    const offered = new Set(["avx", "avx2", "sse2"]);
    checkHere(shape, host({ vendor: "GenuineIntel", offered }));
    assert.throws(() => checkHere(shape, host({ vendor: "AuthenticAMD", offered })), {
      code: "SNAPSHOT_INCOMPATIBLE",
      message: /processor of AuthenticAMD, and it was made on one of GenuineIntel/,
    });
    assert.throws(() => checkHere(shape, host({ vendor: "GenuineIntel", offered: new Set(["avx"]) })), {
      code: "SNAPSHOT_INCOMPATIBLE",
      message: /without avx2, which/,
    });
  });

  test("accepts a snapshot without a recorded processor, as before", () => {
    const { vendor: _v, features: _f, ...older } = shape;
    checkHere(older, host({ vendor: "AuthenticAMD", offered: new Set() }));
    assert.equal(cpuRefusal({ cpu: "Nehalem-v1" }, { vendor: "", offered: new Set() }), undefined);
  });

  test("without KVM refuses a snapshot made with KVM, with the advice for this host", () => {
    const without: CompatibleHost = { ...host(null), accelerator: "tcg", reason: "there is no /dev/kvm", advice: "sudo modprobe kvm_amd" };
    assert.throws(() => checkHere(shape, without), {
      code: "SNAPSHOT_INCOMPATIBLE",
      message: /there is no \/dev\/kvm/,
      hint: /make KVM work: sudo modprobe kvm_amd/,
    });
  });
});

function checkHere(shape: MachineShape, host: CompatibleHost): void {
  checkCompatible("t", shape, { name: "qemu", refusal: (one) => refusalOf(one, host) });
}
