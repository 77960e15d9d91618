// Port proxy front end: forwards requests addressed by path, host name or E2B's headers to a port of a guest.

import { byPort } from "../api/ports.ts";
import { routes } from "../api/routes.ts";
import { parse } from "../dispatch/parse.ts";
import { maskedHost } from "../dispatch/port-metadata.ts";
import { domainOf, originOf } from "../dispatch/proxy-domain.ts";
import { respond } from "../dispatch/respond.ts";
import { pathTo, type Address, type Target } from "../dispatch/target.ts";
import { admitToServer, type Access } from "./access.ts";
import { previewCookie } from "./cookie.ts";
import { serverRefusal } from "./e2b-errors.ts";
import { forward, type Forwarding } from "./forward.ts";
import { PAGE_HEADERS, pageOf, wantsPage } from "./page.ts";
import { ServerPool } from "./pool.ts";
import type { Answer } from "../dispatch/answer.ts";
import type { Exchange } from "../dispatch/exchange.ts";
import type { FrontEnd, Work } from "../dispatch/front-end.ts";
import type { ErrorAnswer } from "../dispatch/problem.ts";
import type { Domain } from "../dispatch/proxy-domain.ts";
import type { Services } from "../dispatch/services.ts";

const { path: LABEL, scope: SCOPE } = routes.proxyRequest;

export class Proxy implements FrontEnd<"port">, Disposable {
  readonly #services: Services;
  readonly #domain: Domain | null;
  readonly #pool = new ServerPool();

  constructor(services: Services) {
    this.#services = services;
    this.#domain = domainOf(services.config.values);
  }

  /** Always true: the guest's server decides */
  mayUpgrade(): boolean {
    return true;
  }

  open(exchange: Exchange, { address }: Extract<Target, { to: "port" }>): Work {
    const { request, transport, remote, stated } = exchange;
    let access: Access | undefined;
    return {
      label: LABEL,
      path: pathTo(address),
      snapshot: null,
      isProbe: false,
      sandbox: () => address.id,
      admit: () => {
        const asked = { address, headers: request.headers, kind: transport.kind, remote, stated, domain: this.#domain };
        access = admitToServer(asked, this.#services);
        return { identity: access.identity, scope: SCOPE };
      },
      serve: async () => {
        if (access) await this.#serve(exchange, address, access);
      },
      refuse: (error) => refuse(error, exchange, address),
    };
  }

  close(): void {
    this.#pool.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  async #serve(exchange: Exchange, address: Address, access: Access): Promise<void> {
    const { id } = parse(byPort, { id: address.id, port: address.port }, "params");
    const { request, transport } = exchange;
    const isPage = !request.upgraded && (request.method === "GET" || request.method === "HEAD");
    if (access.link && isPage) {
      await respond(exchange, this.#enter(access.path, access.link, transport.tls !== null));
      return;
    }
    const { manager, limits, daemon } = this.#services;
    const sandbox = await manager.ports.open(id, exchange.caller);
    try {
      const forwarding: Forwarding = {
        request,
        isUpgrade: request.upgraded !== undefined,
        address,
        access,
        requestId: exchange.id,
        remote: transport.kind === "unix" ? null : exchange.remote,
        isTls: transport.tls !== null,
        maskedHost: maskedHost(manager.sandboxes.get(sandbox.id, exchange.caller).metadata, address.port),
      };
      const needs = { pool: this.#pool, headMs: limits.serverMs, stopping: daemon.stopping, signal: exchange.signal };
      // holds the sandbox in use until the whole response is sent
      await respond(exchange, await forward(forwarding, sandbox, needs));
    } finally {
      sandbox.close();
    }
  }

  /** Moves the preview token into a cookie and redirects, so that the address bar does not show it */
  #enter(path: string, link: { token: string; expiresAtUnix: number }, isTls: boolean): Answer {
    const isSecure = isTls || originOf(this.#services)?.startsWith("https:") === true;
    const maxAgeSecs = Math.max(1, link.expiresAtUnix - Math.floor(Date.now() / 1000));
    return {
      status: 303,
      headers: {
        // collapse leading slashes: `//host` would redirect to another host
        location: path.replace(/^[/\\]+/, "/"),
        "set-cookie": previewCookie(link.token, { maxAgeSecs, isSecure }),
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
      },
    };
  }
}

function refuse(error: ErrorAnswer, { request }: Exchange, address: Address): Answer {
  const { status, problem } = error;
  // marks errors of the daemon, as opposed to those of the guest's server
  const headers = { ...error.headers, "x-forkd-error": problem.code };
  const refused = address.isE2b ? serverRefusal(address, { ...error, headers }, request.headers) : null;
  if (refused) return refused;
  if (address.by === "host" && wantsPage(request)) return { status, headers: { ...headers, ...PAGE_HEADERS }, body: pageOf(problem) };
  return { status, headers, body: problem };
}
