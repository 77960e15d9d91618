// Checks whether a pack can be forked on this machine, before any part of it is stored.

import { ForkdError } from "../errors.ts";
import { otherEngine } from "../vmm/compatible.ts";
import type { Engine } from "../vmm/driver.ts";
import type { PackManifest } from "./manifest.ts";

export type PackHost = {
  architecture: string;
  /** protocol version of the agent */
  protocol: number;
  engine: Pick<Engine, "name" | "packRefusal">;
};

/** Throws SNAPSHOT_INCOMPATIBLE with the reason and a remedy */
export async function checkFit({ requires, name }: PackManifest, host: PackHost): Promise<void> {
  const refuse = (why: string, hint: string): ForkdError =>
    new ForkdError("SNAPSHOT_INCOMPATIBLE", `Cannot use the pack of ${name} here: ${why}.`, { hint, details: { requires } });
  const { architecture, agentProtocol } = requires;
  if (architecture !== host.architecture)
    throw refuse(`it is for ${architecture}, and this machine is ${host.architecture}`, `Use a machine with ${architecture}.`);
  if (agentProtocol !== host.protocol)
    throw refuse(
      `the agent in it speaks protocol ${agentProtocol}, and this forkd ${host.protocol}`,
      agentProtocol > host.protocol ? "Use a newer forkd here." : "Make the snapshot again with a newer forkd, and pack that.",
    );
  const refusal = otherEngine(requires, host.engine) ?? (await host.engine.packRefusal(requires));
  if (refusal) throw refuse(refusal.why, refusal.hint);
}
