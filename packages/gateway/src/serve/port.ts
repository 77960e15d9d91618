// Ports of sandboxes through a gateway: a token of the cluster is checked here; links, cookies and access tokens by the node.

import { routes } from "@forkd/daemon/api/routes";
import { authenticate, bearerOf } from "@forkd/daemon/dispatch/auth";
import { pathTo, type Address } from "@forkd/daemon/dispatch/target";
import { serverRefusal } from "@forkd/daemon/proxy/e2b-errors";
import { TOKEN_HEADER } from "@forkd/daemon/proxy/headers";
import { tokenFinder, withoutTokens } from "@forkd/daemon/proxy/our-tokens";
import { askerOf, type Cluster } from "./cluster.ts";
import { pass } from "./forward.ts";
import type { Exchange } from "@forkd/daemon/dispatch/exchange";
import type { FrontEnd, Work } from "@forkd/daemon/dispatch/front-end";

const { path: LABEL, scope: SCOPE } = routes.proxyRequest;
const PREVIEW = "fkp_";
const BETWEEN = /[\s,;=&"']+/;

export function portFrontEnd(cluster: Cluster): FrontEnd<"port"> {
  return { mayUpgrade: () => true, open: (exchange, { address }) => open(cluster, exchange, address) };
}

function open(cluster: Cluster, exchange: Exchange, address: Address): Work {
  const { request, transport } = exchange;
  const given = request.headers[TOKEN_HEADER];
  const header = typeof given === "string" ? given : undefined;
  const token = header?.startsWith(PREVIEW)
    ? undefined
    : (header ?? (address.by === "path" ? bearerOf(request.headers.authorization) : undefined));
  return {
    label: LABEL,
    path: pathTo(address),
    snapshot: null,
    isProbe: false,
    sandbox: () => address.id,
    admit: () => {
      if (token === undefined) return { identity: null, scope: null };
      const place = address.by === "host" ? address.id : undefined;
      const identity = authenticate({ kind: transport.kind, remote: exchange.remote, token, place }, cluster);
      return { identity, scope: SCOPE };
    },
    serve: async () => {
      const node = await cluster.places.ofSandbox(address.id, askerOf(exchange));
      // the node removes tokens that it knows or that have forkd's form; those of the cluster it may not know
      const isToken = (text: string): boolean => text.split(BETWEEN).some((word) => word.length >= 16 && cluster.tokens.knows(word));
      const isOurs = tokenFinder({ tokens: cluster.tokens, accessTokens: { opens: () => false } }, undefined);
      const drops = (name: string, value: string): boolean =>
        name === "authorization"
          ? (token !== undefined && address.by === "path" && header === undefined) || isToken(value)
          : name === TOKEN_HEADER
            ? token !== undefined
            : isToken(value);
      const url = request.url ?? "/";
      const path = withoutTokens(url, (pair) => isOurs(pair) && !pair.includes(PREVIEW));
      await pass(exchange, cluster, node, { drops, path });
    },
    refuse: (error) => {
      const { status, problem } = error;
      const headers = { ...error.headers, "x-forkd-error": problem.code };
      const refused = address.isE2b ? serverRefusal(address, { ...error, headers }, request.headers) : null;
      return refused ?? { status, headers, body: problem };
    },
  };
}
