// The custom resource WarmSnapshot, as deploy/kubernetes/cluster/warm-snapshot.yaml defines it.

import { createHash } from "node:crypto";
import { tagKey } from "../state/state.ts";

export const GROUP = "forkd.dev/v1alpha1";
export const RESOURCE = "warmsnapshots";
const MADE = "node:";

export type WarmSpec = {
  project: string;
  tag: string;
  /** oci:// or https:// of a pack, or `node:CODE`: the node with that code made it */
  source: string;
  nodes?: string[];
  replicas: number;
  pool: number;
  keep: boolean;
  /** further fields of the tag, for gateways */
  about?: Record<string, unknown>;
};

export type NodeState = { name: string; state: "Ready" | "Fetching" | "Failed"; message?: string };

/** `source`: the one that `snapshot` was fetched from, which may be older than the one in the spec */
export type WarmStatus = { observedGeneration?: number; source?: string; snapshot?: string; ready?: number; nodes?: NodeState[] };

export type WarmSnapshot = {
  apiVersion: string;
  kind: string;
  metadata: { name: string; uid?: string; generation?: number; resourceVersion?: string; creationTimestamp?: string };
  spec: WarmSpec;
  status?: WarmStatus;
};

export function keyOf({ spec }: WarmSnapshot): string {
  return tagKey(spec.project, spec.tag);
}

/** Code of the node that made the snapshot; null: it comes from elsewhere */
export function makerOf({ spec }: WarmSnapshot): string | null {
  return spec.source.startsWith(MADE) ? spec.source.slice(MADE.length) : null;
}

export function madeBy(node: string): string {
  return `${MADE}${node}`;
}

/**
 * Name of the object that a gateway makes for a tag: the same in every gateway, so that of two that make it one gets a
 * conflict. Names of objects have fewer characters than tags
 */
export function objectName(project: string, tag: string): string {
  const readable = tag.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  const hash = createHash("sha256").update(tagKey(project, tag)).digest("hex").slice(0, 10);
  return `${readable.replaceAll(/^-|-$/g, "") || "tag"}-${hash}`;
}

/** One object per tag: of several the oldest counts */
export function byTag(objects: readonly WarmSnapshot[]): Map<string, WarmSnapshot> {
  const age = ({ metadata }: WarmSnapshot): string => `${metadata.creationTimestamp ?? ""} ${metadata.name}`;
  const found = new Map<string, WarmSnapshot>();
  for (const object of objects.toSorted((a, b) => (age(a) < age(b) ? -1 : 1))) {
    const key = keyOf(object);
    if (!found.has(key)) found.set(key, object);
  }
  return found;
}
