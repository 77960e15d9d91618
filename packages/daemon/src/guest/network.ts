// Opens and closes the guest's way out. What may pass is not decided there.

import { ForkdError } from "../errors.ts";
import type { AgentConnection } from "./connection.ts";
import { T } from "./protocol.ts";
import { AgentError } from "./stream.ts";

/** Rejects with NETWORK_UNSUPPORTED where the guest kernel cannot do it */
export async function switchNetwork(agent: AgentConnection, on: boolean, timeoutMs: number): Promise<void> {
  try {
    await agent.call(T.NETWORK, Buffer.of(on ? 1 : 0), { timeoutMs });
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    throw new ForkdError("NETWORK_UNSUPPORTED", `The guest cannot have a network: ${error.message}.`, { cause: error });
  }
}
