// Whether a pack can be forked on this machine: said before anything of it is stored.

import { ForkdError } from "../errors.ts";
import type { Capabilities } from "../vmm/qemu/capabilities.ts";
import { compareVersions } from "../vmm/qemu/version.ts";
import type { PackManifest } from "./manifest.ts";

export type PackHost = {
  architecture: string;
  qemuVersion: string;
  accelerator: "kvm" | "tcg";
  /** of the agent */
  protocol: number;
  capabilities: () => Promise<Capabilities>;
};

/** Throws SNAPSHOT_INCOMPATIBLE with the reason, and with what would help */
export async function checkFit({ requires, name }: PackManifest, host: PackHost): Promise<void> {
  const refuse = (why: string, hint: string): ForkdError =>
    new ForkdError("SNAPSHOT_INCOMPATIBLE", `Cannot use the pack of ${name} here: ${why}.`, { hint, details: { requires } });
  const { architecture, engineVersion, machine, cpu, accelerator, agentProtocol } = requires;
  if (architecture !== host.architecture)
    throw refuse(`it is for ${architecture}, and this machine is ${host.architecture}`, `Use a machine with ${architecture}.`);
  if (agentProtocol !== host.protocol)
    throw refuse(
      `the agent in it speaks protocol ${agentProtocol}, and this forkd ${host.protocol}`,
      agentProtocol > host.protocol ? "Use a newer forkd here." : "Make the snapshot again with a newer forkd, and pack that.",
    );
  if (accelerator === "kvm" && host.accelerator !== "kvm")
    throw refuse("it was made with KVM, which does not work here", "Use a machine where 'forkd doctor' reports KVM.");
  if (compareVersions(host.qemuVersion, engineVersion) < 0)
    throw refuse(`it needs QEMU ${engineVersion} or newer, and this is ${host.qemuVersion}`, `Install QEMU ${engineVersion} or newer.`);
  const { machines, cpus } = await host.capabilities();
  if (!machines.has(machine))
    throw refuse(
      `QEMU ${host.qemuVersion} has no machine ${machine}`,
      "Use a QEMU that has it: 'qemu-system-x86_64 -machine help' lists them.",
    );
  const baseline = "Make the snapshot again with the CPU model that forkd uses, and pack that.";
  const model = cpus.get(cpu);
  if (!model) throw refuse(`QEMU ${host.qemuVersion} has no CPU model ${cpu}`, baseline);
  if (!model.isPortable) throw refuse(`the CPU model ${cpu} is another one on every machine`, baseline);
  if (model.missing.length > 0)
    throw refuse(
      `the CPU of this machine lacks what the model ${cpu} has: ${model.missing.join(", ")}`,
      `Use a machine that has it. ${baseline}`,
    );
}
