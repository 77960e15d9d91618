// REST handlers: ports of sandboxes.

import { ForkdError } from "@forkd/runtime/errors";
import { originOf, PREVIEW_PARAMETER, serverUrl } from "../../dispatch/proxy-domain.ts";
import { relay } from "../../streams/relay.ts";
import type { portRoutes } from "../../api/ports.ts";
import type { Handlers } from "../handler.ts";

export const portHandlers: Pick<Handlers, Exclude<keyof typeof portRoutes, "proxyRequest">> = {
  listPorts: async ({ params }, { services, caller }) => ({
    status: 200,
    body: await services.manager.ports.list(params.id, caller),
  }),

  createPreview: ({ params, body }, { services, caller }) => {
    const { id } = services.manager.sandboxes.get(params.id, caller);
    const origin = originOf(services);
    if (origin === null)
      throw new ForkdError(
        "NO_TCP",
        `Cannot make a link to port ${params.port} of ${id}: the daemon has no address that a browser can reach.`,
      );
    const { token, expiresAtUnix } = services.previews.create({
      sandbox: id,
      port: params.port,
      expiresInSecs: body.expires_in_secs,
      principal: caller.principal,
    });
    const url = `${serverUrl(origin, id, params.port)}?${PREVIEW_PARAMETER}=${token}`;
    return { status: 201, body: { url, token, expires_at_unix: expiresAtUnix }, headers: { "cache-control": "no-store" } };
  },

  connectPort: async ({ params }, { services, caller, headers }) => {
    if (headers.upgrade?.toLowerCase() !== "tcp") throw new ForkdError("UPGRADE_REQUIRED", "Cannot connect: it takes 'Upgrade: tcp'.");
    const sandbox = await services.manager.ports.open(params.id, caller);
    try {
      const guest = await sandbox.connect(params.port, caller.signal);
      const head = `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nX-Request-Id: ${caller.requestId}\r\n\r\n`;
      return {
        status: 101,
        // holds the sandbox in use until the connection closes
        body: async (client, cut) => {
          client.socket.write(head);
          if (client.head.length > 0) guest.write(client.head);
          await relay(client.socket, guest, { cut, stopping: services.daemon.stopping }).finally(() => sandbox.close());
        },
      };
    } catch (error) {
      sandbox.close();
      throw error;
    }
  },
};
