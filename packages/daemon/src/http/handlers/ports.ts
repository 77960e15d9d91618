// Handlers of servers inside sandboxes.

import { ForkdError } from "../../errors.ts";
import { proxyOrigin, serverUrl, splitDomain } from "../proxy/address.ts";
import { PREVIEW_PARAMETER, previewCookie } from "../proxy/cookie.ts";
import { forward } from "../proxy/forward.ts";
import { relay } from "../proxy/relay.ts";
import type { portRoutes } from "../../api/routes/ports.ts";
import type { Handlers, Passage } from "../handler.ts";
import type { OpenSandbox, Services } from "../services.ts";
import type { Exchange } from "../proxy/forward.ts";

export const portHandlers: Pick<Handlers, keyof typeof portRoutes> = {
  listPorts: async ({ params }, { services, caller }) => ({
    status: 200,
    body: await services.manager.ports.list(params.id, caller.signal),
  }),

  createPreview: ({ params, body }, { services, caller }) => {
    const { id } = services.manager.sandboxes.get(params.id);
    const origin = originOf(services);
    if (origin === null)
      throw new ForkdError("NO_TCP", `Cannot make a link to port ${params.port} of ${id}: the daemon listens where no browser gets to.`);
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
    return using(await services.manager.ports.open(params.id), async (sandbox) => {
      const guest = await sandbox.connect(params.port, caller.signal);
      const head = `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nX-Request-Id: ${caller.requestId}\r\n\r\n`;
      return {
        status: 101,
        body: async (client, cut) => {
          client.socket.write(head);
          if (client.head.length > 0) guest.write(client.head);
          await relay(client.socket, guest, { cut, stopping: services.daemon.stopping });
        },
      };
    });
  },

  proxyRequest: async ({ params }, { services, caller: { signal }, exchange }) => {
    if (!exchange) throw new ForkdError("NOT_FOUND", "There is nothing under this path.");
    const { request, isUpgrade, access } = exchange;
    const isPage = !isUpgrade && (request.method === "GET" || request.method === "HEAD");
    if (access.link && isPage) return { status: 303, body: enter(exchange, access.link, services) };
    return using(await services.manager.ports.open(params.id), async (sandbox) => {
      const { pool, limits, daemon } = services;
      return forward(exchange, sandbox, { pool, headMs: limits.serverMs, stopping: daemon.stopping, signal });
    });
  },
};

/** Where browsers find the servers of sandboxes; null: nowhere */
export function originOf({ config, daemon }: Pick<Services, "config" | "daemon">): string | null {
  const { proxyDomain } = config.values;
  return proxyOrigin(proxyDomain === null ? null : splitDomain(proxyDomain), daemon);
}

/** The token of a link becomes a cookie, and disappears from the address */
function enter(exchange: Exchange, link: { token: string; expiresAtUnix: number }, services: Services): Passage {
  const isSecure = exchange.isTls || originOf(services)?.startsWith("https:") === true;
  const maxAgeSecs = Math.max(1, link.expiresAtUnix - Math.floor(Date.now() / 1000));
  return async (to) => {
    to.writeHead(303, {
      // one slash only: two would be the beginning of another host
      location: exchange.access.path.replace(/^[/\\]+/, "/"),
      "set-cookie": previewCookie(link.token, { maxAgeSecs, isSecure }),
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
      "content-length": "0",
    });
    to.end();
  };
}

type Body = (...args: never[]) => Promise<void>;

/** The sandbox counts as used until what comes of it is over */
async function using<A extends { body: Body }>(sandbox: OpenSandbox, work: (sandbox: OpenSandbox) => Promise<A>): Promise<A> {
  try {
    const answer = await work(sandbox);
    const { body } = answer;
    return { ...answer, body: (...args: never[]) => body(...args).finally(() => sandbox.close()) };
  } catch (error) {
    sandbox.close();
    throw error;
  }
}
