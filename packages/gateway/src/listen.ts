// Start of the gateway's servers: its own URL, and the agent-sandbox API.

import { once } from "node:events";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { followHandshakes } from "@forkd/runtime/util/end-server";
import { splitBind } from "@forkd/daemon/config";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";

/** Returns the address as HOST:PORT, with the port that was chosen where 0 was asked for */
export async function listen(server: Server, bind: string): Promise<string> {
  const { host, port } = splitBind(bind);
  followHandshakes(server);
  try {
    server.listen({ host, port });
    await once(server, "listening");
  } catch (error) {
    throw new ForkdError("DAEMON_FAILED", `Cannot listen on ${bind}: ${messageOf(error)}.`, { cause: error });
  }
  return `${host.includes(":") ? `[${host}]` : host}:${(server.address() as AddressInfo).port}`;
}
