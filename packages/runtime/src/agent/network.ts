// Switches the guest's network interface on and off. The egress policy is enforced on the host.

import { ForkdError } from "../errors.ts";
import type { AgentConnection } from "./wire/connection.ts";
import { T } from "./wire/protocol.ts";
import { AgentError } from "./wire/stream.ts";

/** Rejects with NETWORK_UNSUPPORTED when the guest kernel lacks the feature */
export async function switchNetwork(agent: AgentConnection, on: boolean, timeoutMs: number): Promise<void> {
  try {
    await agent.call(T.NETWORK, Buffer.of(on ? 1 : 0), { timeoutMs });
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    throw new ForkdError("NETWORK_UNSUPPORTED", `The guest cannot have a network: ${error.message}.`, { cause: error });
  }
}
