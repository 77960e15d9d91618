// End of a server together with all its connections.

import { once } from "node:events";
import type { Server, Socket } from "node:net";

const connections = new WeakMap<Server, Set<Socket>>();

/**
 * To be called before the server listens. `closeAllConnections` of Node's HTTP servers leaves out connections that have sent no
 * request yet, such as those in a TLS handshake; the end of the server then waits for the client, which may take minutes
 */
export function followConnections(server: Server): void {
  const own = new Set<Socket>();
  connections.set(server, own);
  server.on("connection", (socket) => {
    own.add(socket);
    socket.once("close", () => own.delete(socket));
  });
}

/** Ends all connections at once, also when the server has stopped listening before */
export async function endServer(server: Server): Promise<void> {
  const closed = server.listening ? once(server, "close") : undefined;
  server.close();
  for (const socket of connections.get(server) ?? []) socket.destroy();
  await closed;
}
