// Sandboxes as E2B's API shows them.

import { originOf } from "../../http/handlers/ports.ts";
import { e2bId } from "../ids.ts";
import { isReserved, PUBLIC_KEY } from "../lifecycle.ts";
import type { SandboxInfo } from "../../api/sandbox.ts";
import type { E2bServices } from "../work.ts";

/** What the SDKs may expect of a sandbox: each of them asks for no more than this version had */
export const ENVD_VERSION = "0.6.4";
const ALL_TRAFFIC = "0.0.0.0/0";
const CLIENT_ID = "forkd";
/** E2B's sandboxes all end some time */
const NEVER = "9999-12-31T23:59:59Z";

/** The answer to those who make or open one: with the tokens */
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
  const { created_at_unix: started, expires_at_unix: ends, memory_mib: memory, state } = sandbox;
  return {
    ...named(sandbox),
    startedAt: timeOf(started),
    endAt: ends !== null ? timeOf(ends) : state === "suspended" ? timeOf(sandbox.last_active_unix) : NEVER,
    state: state === "running" ? "running" : "paused",
    cpuCount: sandbox.vcpus,
    memoryMB: memory,
    diskSizeMB: sandbox.disk_mib ?? memory,
    metadata: metadataOf(sandbox),
    volumeMounts: [],
  };
}

export function detailed(sandbox: SandboxInfo, services: E2bServices): object {
  return {
    ...listed(sandbox),
    envdAccessToken: services.accessTokens.of(sandbox, "envd"),
    domain: domainOf(services),
    allowInternetAccess: sandbox.network.mode !== "none",
    network: networkOf(sandbox),
    lifecycle: { onTimeout: sandbox.on_timeout === "suspend" ? "pause" : "kill", autoResume: sandbox.auto_resume },
  };
}

function metadataOf({ metadata }: SandboxInfo): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata).filter(([key]) => !isReserved(key)));
}

function networkOf({ network: { mode, allow }, metadata }: SandboxInfo): object {
  const isPublic = metadata[PUBLIC_KEY] === "true";
  return { allowPublicTraffic: isPublic, allowOut: allow, denyOut: mode === "open" ? [] : [ALL_TRAFFIC] };
}

export function timeOf(unixSeconds: number): string {
  return new Date(unixSeconds * 1000).toISOString();
}

function named({ id, snapshot_tag: tag }: SandboxInfo): object {
  return { sandboxID: e2bId(id), templateID: tag, alias: tag, clientID: CLIENT_ID, envdVersion: ENVD_VERSION };
}

/** Host and port below which each server of a sandbox has a name; null: there is none */
function domainOf(services: E2bServices): string | null {
  return originOf(services)?.replace(/^https?:\/\//, "") ?? null;
}
