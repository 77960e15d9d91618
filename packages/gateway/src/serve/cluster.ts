// What the front ends of a gateway share.

import { DEFAULT_PROJECT } from "@forkd/daemon/store/project-names";
import type { AuthFailures } from "@forkd/daemon/dispatch/auth-failures";
import type { Exchange } from "@forkd/daemon/dispatch/exchange";
import type { Logger } from "@forkd/daemon/observe/log";
import type { Metrics } from "@forkd/daemon/observe/metrics";
import type { Limits } from "@forkd/daemon/streams/limits";
import type { Random } from "../placement/facts.ts";
import type { Nodes } from "../nodes/nodes.ts";
import type { Asker } from "../nodes/signer.ts";
import type { Transfers } from "../nodes/transfers.ts";
import type { ClusterState } from "../state/state.ts";
import type { ClusterLogins } from "../state/logins.ts";
import type { ClusterProjects } from "../state/projects.ts";
import type { ClusterTokens } from "../state/tokens.ts";
import type { KeyedNodes } from "./keyed.ts";
import type { Places } from "./places.ts";
import type { ClusterQuotas } from "./quotas.ts";

export type Cluster = {
  nodes: Nodes;
  transfers: Transfers;
  state: ClusterState;
  tokens: ClusterTokens;
  logins: ClusterLogins;
  projects: ClusterProjects;
  quotas: ClusterQuotas;
  failures: AuthFailures;
  metrics: Metrics;
  places: Places;
  keyed: KeyedNodes;
  limits: Limits;
  log: Logger;
  random: Random;
  stopping: AbortSignal;
  /** facts for GET /v1/status and /v1/config */
  self: { version: string; startedAtMs: number; bind: string; tls: boolean; proxyUrl: string | null; settings: Record<string, string> };
};

/** One request with its route */
export type Asked = {
  exchange: Exchange;
  cluster: Cluster;
  params: Record<string, string>;
  /** query, without the question mark */
  search: string;
};

export function projectOf({ exchange }: Pick<Asked, "exchange">): string {
  return exchange.identity?.project ?? DEFAULT_PROJECT;
}

/** Owner of idempotency keys */
export function ownerOf(asked: Pick<Asked, "exchange">): string {
  return `${projectOf(asked)} ${asked.exchange.identity?.name ?? ""}`;
}

export function askerOf({ identity, remote }: Exchange): Asker {
  return { identity, remote };
}
