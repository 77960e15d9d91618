// Protocol upgrades: the dispatcher admits them like any request, then the front end takes over the socket.

import { ForkdError } from "@forkd/runtime/errors";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";

/** The request, its socket, and bytes that were received after the request */
export type Upgrade = { request: IncomingMessage; socket: Duplex; head: Buffer };

/** Takes over the socket and writes the 101; resolves when the connection is done. Signal: the client disconnected */
export type Takeover = (upgrade: Upgrade, signal: AbortSignal) => Promise<void>;

export function upgradeRequired(): ForkdError {
  return new ForkdError("UPGRADE_REQUIRED", "Cannot serve this as an ordinary request: the connection must be upgraded.");
}

export async function takeOver(upgrade: Upgrade, takeover: Takeover, controller: AbortController): Promise<void> {
  const { socket } = upgrade;
  const gone = (): void => controller.abort(new ForkdError("CANCELLED", "The client disconnected."));
  socket.once("close", gone);
  try {
    await takeover(upgrade, controller.signal);
  } finally {
    socket.off("close", gone);
    socket.destroy();
  }
}
