// End of an HTTP server together with its connections.

import { once } from "node:events";
import { Server as TlsServer } from "node:tls";
import type { Server } from "node:http";
import type { Socket } from "node:net";

/** Connections in their TLS handshake, by the address of the client */
const handshakes = new WeakMap<Server, Map<string, Socket>>();

/**
 * To be called before the server listens. Node's `closeAllConnections` leaves out connections in their TLS handshake; the end of
 * the server then waits for the client, which may take minutes
 */
export function followHandshakes(server: Server): void {
  if (!(server instanceof TlsServer)) return;
  const own = new Map<string, Socket>();
  handshakes.set(server, own);
  server.on("connection", (socket) => {
    const client = addressOf(socket);
    own.set(client, socket);
    socket.once("close", () => own.delete(client));
  });
  server.on("secureConnection", (socket) => own.delete(addressOf(socket)));
}

/** Ends all connections but upgraded ones, also when the server has stopped listening before */
export async function endServer(server: Server): Promise<void> {
  const closed = server.listening ? once(server, "close") : undefined;
  server.close();
  server.closeAllConnections();
  for (const socket of handshakes.get(server)?.values() ?? []) socket.destroy();
  await closed;
}

function addressOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
