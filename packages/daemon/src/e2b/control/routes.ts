// E2B control API: routes and required scopes.

import * as builds from "./builds.ts";
import { listSandboxes } from "./list.ts";
import { updateNetwork } from "./network.ts";
import { getLogs, getMetrics, getMetricsOfMany } from "./observe.ts";
import * as sandboxes from "./sandboxes.ts";
import * as snapshots from "./snapshots.ts";
import * as templates from "./templates.ts";
import { unsupported } from "../unsupported.ts";
import type { ControlRoute } from "../work.ts";

export const controlRoutes: ControlRoute[] = [
  ...both("POST", "/sandboxes", "exec", sandboxes.createSandbox),
  ...both("GET", "/sandboxes", "read", listSandboxes),
  ...both("POST", "/sandboxes/:id/connect", "exec", sandboxes.connectSandbox),
  { method: "POST", path: "/sandboxes/:id/resume", scope: "exec", handler: sandboxes.connectSandbox },
  { method: "GET", path: "/sandboxes/metrics", scope: "read", handler: getMetricsOfMany },
  { method: "GET", path: "/sandboxes/:id", scope: "read", handler: sandboxes.getSandbox },
  { method: "DELETE", path: "/sandboxes/:id", scope: "exec", handler: sandboxes.killSandbox },
  { method: "POST", path: "/sandboxes/:id/timeout", scope: "exec", handler: sandboxes.setTimeoutOf },
  { method: "POST", path: "/sandboxes/:id/refreshes", scope: "exec", handler: sandboxes.refreshSandbox },
  { method: "POST", path: "/sandboxes/:id/pause", scope: "exec", handler: sandboxes.pauseSandbox },
  { method: "PUT", path: "/sandboxes/:id/network", scope: "exec", handler: updateNetwork },
  { method: "GET", path: "/sandboxes/:id/metrics", scope: "read", handler: getMetrics },
  ...both("GET", "/sandboxes/:id/logs", "read", getLogs),
  { method: "POST", path: "/sandboxes/:id/fork", scope: "exec", handler: snapshots.forkSandbox },
  { method: "POST", path: "/sandboxes/:id/snapshots", scope: "exec", handler: snapshots.createSnapshot },
  { method: "GET", path: "/snapshots", scope: "read", handler: snapshots.listSnapshots },
  ...both("GET", "/templates", "read", templates.listTemplates),
  ...["/v2/templates", "/v3/templates"].map((path) => ({ method: "POST", path, scope: "admin" as const, handler: builds.requestBuild })),
  { method: "GET", path: "/templates/:id/files/:hash", scope: "admin", handler: builds.getUpload },
  { method: "PUT", path: "/templates/:id/files/:hash", scope: "admin", byAddress: true, handler: builds.putUpload },
  { method: "POST", path: "/v2/templates/:id/builds/:build", scope: "admin", handler: builds.startBuild },
  { method: "GET", path: "/templates/:id/builds/:build/status", scope: "read", handler: builds.getBuildStatus },
  { method: "GET", path: "/templates/aliases/:alias", scope: "read", handler: templates.getAlias },
  { method: "POST", path: "/templates/tags", scope: "admin", handler: templates.assignTags },
  { method: "DELETE", path: "/templates/tags", scope: "admin", handler: templates.removeTags },
  { method: "GET", path: "/templates/:id/tags", scope: "read", handler: templates.listTags },
  { method: "GET", path: "/templates/:id", scope: "read", handler: templates.getTemplate },
  { method: "DELETE", path: "/templates/:id", scope: "admin", handler: templates.deleteTemplate },
  ...["secrets", "volumes", "volumecontent", "teams", "nodes", "events", "api-keys", "access-tokens"].flatMap(without),
];

/** Registers a route under its v1 path too, which older SDKs use */
function both(method: string, path: string, scope: ControlRoute["scope"], handler: ControlRoute["handler"]): ControlRoute[] {
  return ["", "/v2"].map((version) => ({ method, path: `${version}${path}`, scope, handler }));
}

/** Routes of an E2B feature that forkd lacks; all return UNSUPPORTED */
function without(noun: string): ControlRoute[] {
  const handler = (): never => {
    throw unsupported(noun);
  };
  const paths = [`/${noun}`, `/${noun}/:a`, `/${noun}/:a/:b`];
  return ["GET", "POST", "PUT", "PATCH", "DELETE"].flatMap((method) =>
    paths.map((path) => ({ method, path, scope: "read" as const, handler })),
  );
}
