// Choice of a machine's CPU, and the features that a host needs for it.

import { ForkdError } from "../../errors.ts";
import type { CpuChoice } from "../driver.ts";
import { PLATFORM } from "../../host/platform.ts";
import { BASELINE_CPU } from "./args.ts";

/** Accepted besides model names: the host's own CPU */
export const HOST_CPU = "host";
const BASELINE = "baseline";

const { intel: INTEL, amd: AMD } = PLATFORM.models;

/** Models considered by default. An AMD processor that lacks features of all AMD models gets one of Intel's */
export const CANDIDATES: readonly string[] = [...AMD, ...INTEL];

/** Properties that are options of QEMU, not features of a processor */
const NO_FEATURES = new Set([
  "check",
  "cpuid-0xb",
  "enforce",
  "fill-mtrr-mask",
  "full-cpuid-auto-level",
  "host-cache-info",
  "host-phys-bits",
  "kvm",
  "l3-cache",
  "legacy-cache",
  "migratable",
  "pmu",
  "start-powered-off",
  "tcg-cpuid",
  "vmware-cpuid-freq",
]);

/** QEMU's report about the CPUs that it can provide on this host */
export type CpuFacts = {
  /** vendor of the host's processor, as a guest sees it with KVM */
  vendor: string;
  /** all features that a guest can have on this host */
  offered: ReadonlySet<string>;
  /** features by model, only for queried models that exist */
  features: ReadonlyMap<string, readonly string[]>;
  /** by model, whether it is the same on every host */
  cpus: ReadonlyMap<string, { isPortable: boolean }>;
};

/**
 * The CPU of a new machine. Emulated: a model, by default the baseline, without recorded features: it is the same on
 * every host. With KVM: a model, `host`, or by default the newest model that this host supports completely.
 * Throws CPU_UNAVAILABLE.
 */
export function chooseCpu(asked: string | undefined, accelerator: "kvm" | "tcg", facts: CpuFacts): CpuChoice {
  const named = asked === BASELINE ? BASELINE_CPU : asked;
  if (accelerator === "tcg") {
    if (named === HOST_CPU) throw unavailable(HOST_CPU, "the processor is emulated here, and has no model of the host");
    return { cpu: named === undefined ? BASELINE_CPU : checked(named, facts) };
  }
  const cpu = named === undefined ? newest(facts) : named === HOST_CPU ? HOST_CPU : checked(named, facts);
  const features = cpu === HOST_CPU ? [...facts.offered].toSorted() : [...(facts.features.get(cpu) ?? [])];
  return { cpu, vendor: facts.vendor, features };
}

/**
 * Missing requirement of a machine on this host, as the end of "this host has …"; undefined: nothing. Known only with KVM
 */
export function cpuRefusal(shape: CpuChoice, { vendor, offered }: Pick<CpuFacts, "vendor" | "offered">): string | undefined {
  if (shape.vendor !== undefined && shape.vendor !== vendor) return `a processor of ${vendor}, and it was made on one of ${shape.vendor}`;
  const missing = (shape.features ?? []).filter((feature) => !offered.has(feature));
  return missing.length === 0 ? undefined : `a processor without ${missing.join(", ")}, which it was made with`;
}

/** Features in a reply to query-cpu-model-expansion: each once, although QEMU lists several spellings */
export function featuresOf(properties: Readonly<Record<string, unknown>>): string[] {
  const names = Object.entries(properties)
    .filter(([, value]) => value === true)
    .map(([name]) => name.replaceAll(/[._]/g, "-"))
    .filter((name) => !NO_FEATURES.has(name) && !name.startsWith("x-"));
  return [...new Set(names)].toSorted();
}

function newest(facts: CpuFacts): string {
  if (CANDIDATES.length === 0) return HOST_CPU;
  const models = facts.vendor === "GenuineIntel" ? INTEL : CANDIDATES;
  const found = models.find((model) => facts.features.has(model) && missingOf(model, facts).length === 0);
  if (found !== undefined) return found;
  throw unavailable(BASELINE_CPU, `the processor of this host lacks ${missingOf(BASELINE_CPU, facts).join(", ")}`);
}

function checked(model: string, facts: CpuFacts): string {
  if (!facts.features.has(model)) throw unavailable(model, "QEMU has no such model");
  if (facts.cpus.get(model)?.isPortable !== true) throw unavailable(model, "it is another one on every host");
  const missing = missingOf(model, facts);
  if (missing.length > 0) throw unavailable(model, `the processor of this host lacks ${missing.join(", ")}`);
  return model;
}

function missingOf(model: string, { features, offered }: CpuFacts): string[] {
  return (features.get(model) ?? []).filter((feature) => !offered.has(feature));
}

function unavailable(model: string, why: string): ForkdError {
  return new ForkdError("CPU_UNAVAILABLE", `Cannot make a machine with the CPU ${model} here: ${why}.`);
}
