// Dependencies shared by the front ends: manager, tokens, limits, metrics and logs.

import type { ForkdError } from "@forkd/runtime/errors";
import type { ClaimReader } from "../cluster/identity.ts";
import type { QuotaUse } from "../api/project.ts";
import type { Config, ResolvedConfig } from "../config.ts";
import type { ManagerApi } from "../service/manager.ts";
import type { Recipes } from "../recipe/recipes.ts";
import type { AuditLog } from "../observe/audit.ts";
import type { Logger } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { AccessTokens } from "../store/access-tokens.ts";
import type { MovedAccess } from "../store/moved-access.ts";
import type { Previews } from "../store/previews.ts";
import type { Projects } from "../store/projects.ts";
import type { Tokens } from "../store/tokens.ts";
import type { UiSessions } from "../store/ui-sessions.ts";
import type { Limits } from "../streams/limits.ts";
import type { AuthFailures } from "./auth-failures.ts";
import type { InFlight } from "./in-flight.ts";

/** Facts about the daemon, and its stop functions */
export type DaemonApi = {
  version: string;
  /** the store it serves; a client may send the id in `x-forkd-store` as a check */
  store: { id: string; home: string };
  socket: string;
  /** HOST:PORT of the TCP listener, null without TCP */
  bind: string | null;
  tls: boolean;
  startedAtMs: number;
  /** aborted when the daemon stops accepting work */
  stopping: AbortSignal;
  /** HOST:PORT for browsers; a daemon without TCP starts to listen on the loopback interface */
  listenForBrowsers(): Promise<string>;
  /** starts the shutdown; requests in progress complete first */
  stop(opts: { killSandboxes: boolean }): void;
  /** Same, but throws IN_USE while sandboxes exist or other requests (not the one with signal `own`) are in progress */
  stopIfIdle(opts: { killSandboxes: boolean }, own: AbortSignal): void;
};

/** What the request pipeline needs, without the front ends: the gateway of a cluster has other front ends */
export type Pipeline = Pick<Services, "inFlight" | "audit" | "log" | "limits" | "cluster"> & {
  config: { values: Pick<Config, "corsOrigins" | "allowedHosts" | "bind" | "proxyDomain"> };
  daemon: Pick<DaemonApi, "store" | "socket" | "stopping">;
  metrics: Pick<Metrics, "answered" | "failed">;
  tokens: Pick<Tokens, "noteOfCluster">;
  /** throws NOT_FOUND */
  projects: { get: (name: string) => { name: string } };
  /** counts against the quota of the project; throws QUOTA_EXCEEDED */
  countRequest: (project: string) => void;
  /** a gateway says what the project uses on the other nodes of the cluster */
  usedElsewhere: (project: string, use: QuotaUse["used"]) => void;
  /** creator of a sandbox by its id or name; null: not known */
  makerOf: (sandbox: string, project: string | undefined) => string | null;
  /** SANDBOX_MOVED for the id of a sandbox that another node has; undefined: it has not moved */
  movedTo: (sandbox: string | null) => ForkdError | undefined;
};

export type Services = {
  manager: ManagerApi;
  recipes: Pick<Recipes, keyof Recipes>;
  daemon: DaemonApi;
  config: ResolvedConfig;
  metrics: Metrics;
  tokens: Tokens;
  projects: Projects;
  previews: Previews;
  uiSessions: UiSessions;
  /** access tokens of E2B's protocol */
  accessTokens: AccessTokens;
  /** access that clients got on the nodes where sandboxes were before */
  movedAccess: MovedAccess;
  /** checks statements of gateways; null: this daemon is in no cluster */
  cluster: ClaimReader | null;
  failures: AuthFailures;
  inFlight: InFlight;
  audit: AuditLog | null;
  log: Logger;
  limits: Limits;
};
