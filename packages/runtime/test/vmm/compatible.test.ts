// Incompatibilities with QEMU: packs from another host, and snapshots of another engine.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkCompatible } from "../../src/vmm/compatible.ts";
import { packRefusalOf, type PackHost } from "../../src/vmm/qemu/compatible.ts";
import { stateOf } from "../../src/vmm/qemu/driver.ts";
import type { PackNeeds, Refusal } from "../../src/vmm/driver.ts";

const HOST: PackHost = {
  qemuVersion: "7.2.22",
  accelerator: "tcg",
  reason: "there is no /dev/kvm",
  capabilities: async () => ({
    machines: new Set(["pc-q35-7.2"]),
    cpus: new Map([
      ["Nehalem-v1", { missing: [], isPortable: true }],
      ["Haswell-v4", { missing: ["pcid", "x2apic"], isPortable: true }],
      ["host", { missing: [], isPortable: false }],
    ]),
    vendor: "AuthenticAMD",
    offered: new Set(["avx", "avx2", "sse4-2"]),
    features: new Map([["Nehalem-v1", ["sse4-2"]]]),
  }),
};
const NEEDS: PackNeeds = { engine: "qemu", engineVersion: "7.2.22", machine: "pc-q35-7.2", cpu: "Nehalem-v1", accelerator: "tcg" };
const KVM = { accelerator: "kvm", vendor: "AuthenticAMD", features: ["avx2", "sse4-2"] } satisfies Partial<PackNeeds>;
const WITH_KVM = { accelerator: "kvm", reason: "it works" } as const;

const asks = async (needs: Partial<PackNeeds>, host: Partial<PackHost> = {}): Promise<Refusal | undefined> =>
  packRefusalOf({ ...NEEDS, ...needs }, { ...HOST, ...host });

test("a compatible pack is accepted", async () => {
  assert.equal(await asks({}), undefined);
  assert.equal(await asks({ engineVersion: "7.2.1" }, { qemuVersion: "10.1.0" }), undefined);
  assert.equal(await asks(KVM, WITH_KVM), undefined);
  // an emulated CPU is the same on every host
  assert.equal(await asks({ accelerator: "tcg", cpu: "Haswell-v4" }, WITH_KVM), undefined);
});

test("an incompatible pack is refused, with the reason and a hint", async () => {
  const refusals: [Promise<Refusal | undefined>, RegExp, RegExp][] = [
    [asks({ engineVersion: "9.0.0" }), /QEMU 9\.0\.0 or newer/, /Install QEMU 9\.0\.0/],
    [asks({ accelerator: "kvm" }), /made with KVM/, /forkd doctor/],
    [asks({ machine: "microvm" }), /another one with every QEMU/, /has a version/],
    [asks({ machine: "pc-q35-99" }), /no machine pc-q35-99/, /machine help/],
    [asks({ machine: "pc-q35-7.2,firmware=/etc/passwd" }), /no machine/, /machine help/],
    [asks({ cpu: "Nehalem-v99" }), /no CPU model/, /Make the snapshot again/],
    [asks({ cpu: "Nehalem-v1,+vmx" }), /no CPU model/, /Make the snapshot again/],
    [asks({ cpu: "host" }), /another one on every machine/, /Make the snapshot again/],
    [asks({ cpu: "Haswell-v4" }), /lacks .*pcid, x2apic/, /Use a machine/],
    [
      asks({ accelerator: "kvm" }, { advice: "sudo modprobe kvm_amd" }),
      /not used here \(there is no \/dev\/kvm\)/,
      /sudo modprobe kvm_amd/,
    ],
    [asks({ ...KVM, vendor: "GenuineIntel" }, WITH_KVM), /processor of AuthenticAMD, and it was made on one of GenuineIntel/, /baseline/],
    [asks({ ...KVM, features: ["avx2", "avx512f"] }, WITH_KVM), /without avx512f, which/, /baseline/],
  ];
  for (const [refused, why, hint] of refusals) {
    const refusal = await refused;
    assert.match(refusal?.why ?? "", why);
    assert.match(refusal?.hint ?? "", hint);
  }
});

test("a snapshot of another engine is refused before its own rules are checked", () => {
  const shape = { ...NEEDS, engine: "other", vcpus: 1, memoryMiB: 64 };
  const engine = { name: "qemu", refusal: () => assert.fail("its rules are another engine's") };
  assert.throws(() => checkCompatible("t", shape, engine), {
    code: "SNAPSHOT_INCOMPATIBLE",
    message: "Cannot fork snapshot t here: it was made with the engine other, and this host uses qemu.",
  });
});

test("doctor gets whether QEMU exists and is new enough", () => {
  assert.deepEqual(stateOf(null), { isUsable: false, reason: "qemu-system-x86_64 is not in PATH." });
  assert.deepEqual(stateOf({ path: "/q", version: null }), { isUsable: false, reason: "/q --version gave no version." });
  assert.deepEqual(stateOf({ path: "/q", version: "6.2.0" }), { isUsable: false, reason: "/q is 6.2.0; forkd needs 7.2 or newer." });
  assert.deepEqual(stateOf({ path: "/q", version: "10.0.1" }), { isUsable: true, reason: "10.0.1, /q" });
});
