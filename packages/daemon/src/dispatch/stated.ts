// Requests from a gateway of the cluster: its statement replaces the token and the address of the connection.

import { ForkdError } from "@forkd/runtime/errors";
import { IDENTITY_HEADER } from "../cluster/identity.ts";
import { DEFAULT_PROJECT } from "../store/project-names.ts";
import type { Exchange } from "./exchange.ts";
import type { Pipeline } from "./services.ts";

const REVOKED = "Cannot continue: the token was revoked or replaced.";

/** Without the setting `cluster_key_file`, and on the Unix socket, the header has no effect. Throws UNAUTHORIZED */
export function takeStatement(exchange: Exchange, { cluster, tokens, inFlight, usedElsewhere }: Pipeline): void {
  const { request, transport, method } = exchange;
  const header = request.headers[IDENTITY_HEADER];
  if (header === undefined || cluster === null || transport.kind !== "tcp") return;
  if (typeof header !== "string") throw new ForkdError("UNAUTHORIZED", "Cannot trust the gateway's statement: there are several.");
  const { name, scope, project, max_sandboxes, stamp, since, remote, revoked, elsewhere } = cluster.read(header, {
    method,
    url: request.url ?? "",
  });
  for (const [gone, at] of revoked)
    if (tokens.noteOfCluster({ name: gone, stamp: null, since: at, max_sandboxes: null }))
      inFlight.abortOf(gone, new ForkdError("UNAUTHORIZED", REVOKED));
  exchange.remote = remote;
  exchange.isFromGateway = true;
  if (name === null) return;
  if (project !== null && elsewhere !== null) usedElsewhere(project, elsewhere);
  if (tokens.noteOfCluster({ name, stamp, since, max_sandboxes })) inFlight.abortOf(name, new ForkdError("UNAUTHORIZED", REVOKED));
  exchange.stated = { name, project: project ?? DEFAULT_PROJECT, scope, maxSandboxes: max_sandboxes };
}
