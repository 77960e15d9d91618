// Isolation and confinement requirements against the capabilities of the host.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkIsolation } from "../src/host-support.ts";

const KVM = { accelerator: "kvm", reason: "a guest booted with KVM" } as const;
const TCG = { accelerator: "tcg", reason: "there is no /dev/kvm" } as const;

test("if KVM is required nothing emulated is started, on any host", () => {
  assert.throws(() => checkIsolation("kvm", "emulated", TCG), { code: "ISOLATION_UNAVAILABLE", message: /there is no \/dev\/kvm\.$/ });
  assert.throws(() => checkIsolation("kvm", "emulated", KVM), {
    code: "ISOLATION_UNAVAILABLE",
    message: /its snapshot was made without KVM/,
    hint: /Make the snapshot again/,
  });
  checkIsolation("kvm", "kvm", KVM);
});

test("without a requirement, an emulated guest is started only on a host without KVM", () => {
  for (const policy of ["auto", undefined] as const) {
    for (const isolation of ["emulated", "kvm"] as const) checkIsolation(policy, isolation, TCG);
    checkIsolation(policy, "kvm", KVM);
    assert.throws(() => checkIsolation(policy, "emulated", KVM), {
      code: "ISOLATION_UNAVAILABLE",
      message: /would be emulated, which isolation = auto forbids on this host/,
      hint: /`isolation=any` allows it/,
    });
  }
});

test("if anything is allowed, everything is started", () => {
  for (const host of [KVM, TCG]) for (const isolation of ["emulated", "kvm"] as const) checkIsolation("any", isolation, host);
});

test("the advice for this host is the hint", () => {
  const advised = { ...TCG, advice: "sudo modprobe kvm_amd" };
  assert.throws(() => checkIsolation("kvm", "emulated", advised), { code: "ISOLATION_UNAVAILABLE", hint: "sudo modprobe kvm_amd" });
});
