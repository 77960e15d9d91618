// Shapes of objects in Kubernetes, as far as they are read here.

import { createHash } from "node:crypto";
import { apiVersionOf, RESOURCES, type Resource } from "./resources.ts";

type Meta = {
  name: string;
  namespace: string;
  uid: string;
  creationTimestamp: string;
  resourceVersion?: string;
  generation?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
};

export type Condition = { type: string; status: "True" | "False"; reason: string; message: string; lastTransitionTime: string };

export type KubernetesObject = {
  apiVersion: string;
  kind: string;
  metadata: Meta;
  spec: Record<string, unknown>;
  status?: Record<string, unknown>;
};

/** What a client sends */
export type Given = {
  name: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
  uid?: string;
  resourceVersion?: string;
  spec: Record<string, unknown>;
};

export function objectOf(resource: Resource, metadata: Meta, parts: Pick<KubernetesObject, "spec" | "status">): KubernetesObject {
  const { group, kind } = RESOURCES[resource];
  const { labels = {}, annotations = {}, ...rest } = metadata;
  const meta: Meta = { ...rest, generation: 1 };
  if (Object.keys(labels).length > 0) meta.labels = labels;
  if (Object.keys(annotations).length > 0) meta.annotations = annotations;
  return { apiVersion: apiVersionOf(group), kind, metadata: meta, ...parts };
}

/** A UID that every gateway derives in the same way */
export function uidOf(...parts: string[]): string {
  const hex = createHash("sha256").update(parts.join("\n")).digest("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** Kubernetes' form of a time: whole seconds, UTC */
export function timeOf(unixSecs: number): string {
  return new Date(unixSecs * 1000).toISOString().replace(/\.\d{3}Z$/, "Z");
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
