// Arguments that several tools have, and the fields of sandboxes and snapshots in answers.

import * as z from "zod";
import { DEFAULT_BYTES, MAX_BYTES } from "./text.ts";
import type { NetworkOptions, SandboxInfo, SnapshotInfo } from "forkd";

/** Default number of entries of a list */
const DEFAULT_LIMIT = 50;

/**
 * No addresses: the daemon's owner may allow private networks, but a model that follows injected instructions must not.
 * A name never reaches a private address, whatever it resolves to.
 */
const NAME_RULE = /^(\*\.)?(?![\d.]+(:|$))[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?(:[\d,-]+)?$/i;

export const sandboxId = z.string().min(1).max(64).describe("Id (sb-…) or name of a sandbox");

export const guestPath = z.string().min(1).max(4096).describe("Absolute path inside the sandbox");

export const paging = {
  limit: z.int().min(1).max(200).default(DEFAULT_LIMIT).describe("Entries in this answer"),
  cursor: z.string().max(256).optional().describe("next_cursor of the answer before"),
};

export const full = z.boolean().default(false).describe("Every field instead of the essential ones");

export const maxBytes = z
  .int()
  .min(4)
  .max(MAX_BYTES)
  .default(DEFAULT_BYTES)
  .describe("Most bytes of each text in this answer; the rest can be asked for");

export const env = z.record(z.string(), z.string()).optional().describe("Environment variables, added to the sandbox's own");

export const description = z.string().max(1024).optional().describe("What the snapshot is for; list_snapshots shows it");
export const metadata = z.record(z.string(), z.string()).optional().describe("Your own labels, such as the approach you try there");

export const network = z
  .strictObject({
    mode: z.enum(["none", "allow", "open"]).describe("none: no network at all; allow: only what is listed; open: any public address"),
    allow: z
      .array(z.string().regex(NAME_RULE, "must be a name, such as index.example or *.example.org:443; addresses are for the user to allow"))
      .max(256)
      .optional()
      .describe("Names, such as index.example or *.example.org:443"),
    egress_limit_bytes: z.int().min(0).optional().describe("Total bytes that may leave the sandbox"),
  })
  .optional()
  .describe("Network policy; without it, that of the snapshot, which allows nothing by default. Allow no more than the work needs");

/** Options of every new sandbox */
export const newSandbox = {
  keep: z
    .boolean()
    .default(false)
    .describe("true: it stays when this connection ends, and you or the user must kill it. Otherwise it ends with the connection"),
  ttl_secs: z.int().min(1).optional().describe("Only with keep: seconds after which it ends"),
  memory_limit_mib: z
    .int()
    .min(0)
    .optional()
    .describe("Limit of host memory for each; 0: no limit. Needs a host with cgroup limits, else LIMIT_UNAVAILABLE"),
  env,
  metadata,
  network,
  full,
};

/** The same in the form of the SDK */
export function networkOf(given: z.output<typeof network>): { network?: NetworkOptions } {
  if (given === undefined) return {};
  const { egress_limit_bytes: egressLimitBytes, ...rest } = given;
  return { network: { ...rest, egressLimitBytes } };
}

export function sandboxView(sandbox: SandboxInfo, isFull: boolean): object {
  if (isFull) return sandbox;
  const { id, name, snapshot_tag, state, reason, kernels, memory_mib, expires_at_unix, metadata: labels, warnings } = sandbox;
  return {
    id,
    name,
    snapshot_tag,
    state,
    ...said({ reason }),
    kernels,
    memory_mib,
    expires_at_unix,
    metadata: labels,
    ...said({ warnings }),
  };
}

export function snapshotView(snapshot: SnapshotInfo, isFull: boolean): object {
  if (isFull) return snapshot;
  const { tag, status, bootable, image, memory_mib, kernels, parent_tag, branched_from, created_at_unix } = snapshot;
  const { description: purpose, pause_ms, delta_bytes, error, warning, warnings } = snapshot;
  const made = { tag, status, bootable, image, memory_mib, kernels, parent_tag, branched_from, created_at_unix };
  return { ...made, ...said({ description: purpose, pause_ms, delta_bytes, error, warning, warnings }) };
}

/** Without empty fields */
function said(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && !(Array.isArray(value) && value.length === 0)));
}
