// Sandboxes in the form of E2B's API.

import { originOf } from "../../dispatch/proxy-domain.ts";
import { e2bId } from "../../dispatch/e2b-id.ts";
import { HOST_KEY, isReserved, PUBLIC_KEY } from "../../dispatch/port-metadata.ts";
import type { SandboxInfo } from "../../api/sandbox.ts";
import type { Caller } from "../../service/caller.ts";
import type { E2bServices } from "../work.ts";

/** Reported envd version: the SDKs enable features by it */
export const ENVD_VERSION = "0.6.4";
const ALL_TRAFFIC = "0.0.0.0/0";
const CLIENT_ID = "forkd";
/** End time of a sandbox without a timeout: E2B's field is not nullable */
const NEVER = "9999-12-31T23:59:59Z";

/** Response to creation and connection, with the access tokens */
export function opened(sandbox: SandboxInfo, services: E2bServices): object {
  const { accessTokens } = services;
  return {
    ...named(sandbox),
    envdAccessToken: accessTokens.of(sandbox, "envd"),
    trafficAccessToken: accessTokens.of(sandbox, "traffic"),
    domain: domainOf(services),
  };
}

export function listed(sandbox: SandboxInfo): object {
  const { created_at_unix_ms: startedMs, expires_at_unix: ends, memory_mib: memory, state } = sandbox;
  return {
    ...named(sandbox),
    startedAt: new Date(startedMs).toISOString(),
    endAt: ends !== null ? timeOf(ends) : state === "suspended" ? timeOf(sandbox.last_active_unix) : NEVER,
    state: state === "running" ? "running" : "paused",
    cpuCount: sandbox.vcpus,
    memoryMB: memory,
    diskSizeMB: sandbox.disk_mib ?? memory,
    metadata: metadataOf(sandbox),
    volumeMounts: [],
  };
}

/** Includes the access token if the caller may run programs in the sandbox */
export function detailed(sandbox: SandboxInfo, services: E2bServices, { mayExec }: Pick<Caller, "mayExec">): object {
  return {
    ...listed(sandbox),
    ...(mayExec ? { envdAccessToken: services.accessTokens.of(sandbox, "envd") } : {}),
    domain: domainOf(services),
    allowInternetAccess: sandbox.network.mode !== "none",
    network: networkOf(sandbox),
    lifecycle: { onTimeout: sandbox.on_timeout === "suspend" ? "pause" : "kill", autoResume: sandbox.auto_resume },
  };
}

function metadataOf({ metadata }: SandboxInfo): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata).filter(([key]) => !isReserved(key)));
}

function networkOf({ network: { mode, allow, deny = [] }, metadata }: SandboxInfo): object {
  const isPublic = metadata[PUBLIC_KEY] === "true";
  const mask = metadata[HOST_KEY];
  return {
    allowPublicTraffic: isPublic,
    allowOut: allow,
    denyOut: mode === "open" ? deny : [ALL_TRAFFIC],
    ...(mask === undefined ? {} : { maskRequestHost: mask }),
  };
}

export function timeOf(unixSeconds: number): string {
  return new Date(unixSeconds * 1000).toISOString();
}

function named({ id, snapshot_tag: tag }: SandboxInfo): object {
  return { sandboxID: e2bId(id), templateID: tag, alias: tag, clientID: CLIENT_ID, envdVersion: ENVD_VERSION };
}

/** Host and port below which each guest server has a name; null: host names are disabled */
function domainOf(services: E2bServices): string | null {
  return originOf(services)?.replace(/^https?:\/\//, "") ?? null;
}
