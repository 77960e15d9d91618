// The report of doctor: the overall verdict, and the isolation to expect.

import { runChecks } from "./checks.ts";

import type { Check } from "./checks.ts";
import type { HostFacts } from "./host-facts.ts";

export type DoctorReport = {
  /** false when a check is "fail" */
  ok: boolean;
  /** null when it could not be probed */
  accelerator: "kvm" | "tcg" | null;
  isolation: "kvm" | "emulated" | null;
  /** of VMMs; null when it could not be tried */
  confinement: "namespaces" | "none" | null;
  summary: string;
  checks: Check[];
};

export function reportOf(facts: HostFacts): DoctorReport {
  const checks = runChecks(facts);
  const accelerator = facts.accelerator?.accelerator ?? null;
  const isolation = accelerator === null ? null : accelerator === "kvm" ? "kvm" : "emulated";
  const confinement = facts.confinement?.kind ?? null;
  const ok = checks.every((check) => check.status !== "fail");
  return { ok, accelerator, isolation, confinement, summary: summarise(facts, checks), checks };
}

function summarise(facts: HostFacts, checks: Check[]): string {
  const failed = checks.filter((check) => check.status === "fail").map((check) => check.id);
  const readiness = failed.length > 0 ? `Not ready: ${failed.join(", ")}.` : "Ready.";
  if (!facts.accelerator) return `${readiness} The accelerator is not known yet.`;
  if (facts.accelerator.accelerator === "kvm") {
    const mayBeEmulated = facts.isolationPolicy === "any" && facts.emulatedSnapshots.length > 0;
    const except = mayBeEmulated ? ", except in forks of snapshots that were made without KVM" : "";
    return `${readiness} VMs will use KVM: guests are isolated by the processor${except}.`;
  }
  return facts.isolationPolicy === "kvm"
    ? `${readiness} KVM is not used here, and isolation = kvm demands it: no VM starts.`
    : `${readiness} VMs will use tcg, ${facts.engine.title}'s translator: isolation is emulated, which is not a security boundary. Run only code you trust.`;
}
