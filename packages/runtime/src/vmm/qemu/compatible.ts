// Compatibility of snapshots and packs with this QEMU on this host.

import type { AcceleratorChoice, MachineShape, PackNeeds, Refusal } from "../driver.ts";
import { MICROVM } from "./args.ts";
import { PROGRAM } from "./binary.ts";
import type { Capabilities } from "./capabilities.ts";
import { cpuRefusal, type CpuFacts } from "./cpu-model.ts";
import { compareVersions } from "./version.ts";

type Host = AcceleratorChoice & { qemuVersion: string };

export type CompatibleHost = Host & {
  /** null: unknown, or not needed because guests are emulated */
  cpu: Pick<CpuFacts, "vendor" | "offered"> | null;
};

export type PackHost = Host & { capabilities: () => Promise<Capabilities> };

export function refusalOf(shape: MachineShape, host: CompatibleHost): Refusal | undefined {
  if (shape.accelerator === "kvm" && host.accelerator !== "kvm")
    return {
      why: `it was made with KVM, which is not used on this host (${host.reason})`,
      hint:
        host.advice === undefined
          ? "Make the snapshot again here, or run it where 'forkd doctor' reports KVM."
          : `Make the snapshot again here, or make KVM work: ${host.advice}`,
    };
  const lacking = host.cpu ? cpuRefusal(shape, host.cpu) : undefined;
  if (lacking !== undefined)
    return { why: `this host has ${lacking}`, hint: "Make the snapshot again here, or run it on a host that has them." };
  if (shape.machine === MICROVM && host.qemuVersion !== shape.engineVersion)
    return {
      why: `a microvm is another machine with every QEMU, and it was made with ${shape.engineVersion}`,
      hint: `Use QEMU ${shape.engineVersion}, or make the snapshot again here.`,
    };
  if (compareVersions(host.qemuVersion, shape.engineVersion) < 0)
    return {
      why: `it was made with QEMU ${shape.engineVersion} and this is the older ${host.qemuVersion}`,
      hint: "Install a newer QEMU, or make the snapshot again here.",
    };
  return undefined;
}

/** A pack comes from another host: its machine and CPU must exist on this one and be the same on every host */
export async function packRefusalOf(needs: PackNeeds, host: PackHost): Promise<Refusal | undefined> {
  const { engineVersion, machine, cpu, accelerator } = needs;
  if (accelerator === "kvm" && host.accelerator !== "kvm")
    return {
      why: `it was made with KVM, which is not used here (${host.reason})`,
      hint: host.advice === undefined ? "Use a machine where 'forkd doctor' reports KVM." : `Make KVM work here: ${host.advice}`,
    };
  if (compareVersions(host.qemuVersion, engineVersion) < 0)
    return {
      why: `it needs QEMU ${engineVersion} or newer, and this is ${host.qemuVersion}`,
      hint: `Install QEMU ${engineVersion} or newer.`,
    };
  const { machines, cpus, vendor, offered } = await host.capabilities();
  if (machine === MICROVM)
    return {
      why: `its machine ${machine} is another one with every QEMU`,
      hint: "Make the snapshot again with a machine that has a version.",
    };
  if (!machines.has(machine))
    return {
      why: `QEMU ${host.qemuVersion} has no machine ${machine}`,
      hint: `Use a QEMU that has it: '${PROGRAM} -machine help' lists them.`,
    };
  const baseline = "Make the snapshot again with `cpu=baseline`, and pack that.";
  const model = cpus.get(cpu);
  if (!model) return { why: `QEMU ${host.qemuVersion} has no CPU model ${cpu}`, hint: baseline };
  if (!model.isPortable) return { why: `the CPU model ${cpu} is another one on every machine`, hint: baseline };
  const lacking = cpuRefusal(needs, { vendor, offered });
  if (lacking !== undefined) return { why: `this machine has ${lacking}`, hint: `Use a machine that fits. ${baseline}` };
  // Packs of versions that did not record features. Features that KVM lacks do not matter to an emulated guest.
  if (needs.features === undefined && accelerator === host.accelerator && model.missing.length > 0)
    return {
      why: `the CPU of this machine lacks what the model ${cpu} has: ${model.missing.join(", ")}`,
      hint: `Use a machine that has it. ${baseline}`,
    };
  return undefined;
}
