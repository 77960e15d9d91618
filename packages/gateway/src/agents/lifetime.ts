// When a sandbox ends: Kubernetes' shutdown time and policy as forkd's time to live.

import type { Cause } from "./refusal.ts";

const MAX_SECS = 366 * 24 * 3600;

export type Lifetime = { ttl_secs?: number | null; on_timeout?: "end" | "suspend" };

/** `Retain` keeps the state: the sandbox is suspended. Also what upstream does without a policy */
export function readLifetime(given: Record<string, unknown>, field: string, causes: Cause[], nowMs: number = Date.now()): Lifetime {
  const { shutdownTime, shutdownPolicy = "Retain" } = given;
  if (shutdownPolicy !== "Delete" && shutdownPolicy !== "Retain")
    causes.push({ field: `${field}.shutdownPolicy`, message: "must be Delete or Retain" });
  if (shutdownTime === undefined || shutdownTime === null) return {};
  const atMs = typeof shutdownTime === "string" ? Date.parse(shutdownTime) : Number.NaN;
  const secs = Math.ceil((atMs - nowMs) / 1000);
  if (!(secs >= 1 && secs <= MAX_SECS))
    causes.push({ field: `${field}.shutdownTime`, message: "must be a time in the future, within a year" });
  return { ttl_secs: secs, on_timeout: shutdownPolicy === "Delete" ? "end" : "suspend" };
}
