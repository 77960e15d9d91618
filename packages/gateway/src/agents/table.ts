// Other forms of objects: tables, which kubectl asks for, and metadata alone.

import { isRecord, type KubernetesObject } from "./objects.ts";
import { SNAPSHOT_ANNOTATION } from "./pod-template.ts";
import { RESOURCES, type Resource } from "./resources.ts";

const TABLE = /\bas=Table\b/;
const METADATA = /\bas=PartialObjectMetadata(?:List)?\b/;

/** What a client wants in place of objects */
export type Form = "objects" | "table" | "metadata";

export function formOf(accept: string | undefined): Form {
  if (TABLE.test(accept ?? "")) return "table";
  return METADATA.test(accept ?? "") ? "metadata" : "objects";
}

/** For clients that follow all kinds of objects, such as the garbage collector of Kubernetes */
export function metadataOf({ metadata }: KubernetesObject): object {
  return { kind: "PartialObjectMetadata", apiVersion: "meta.k8s.io/v1", metadata };
}

/** @param include `includeObject` of the query */
export function tableOf(
  resource: Resource,
  objects: readonly KubernetesObject[],
  opts: { version?: string; include: string | null; hasColumns?: boolean },
): object {
  const { columns } = RESOURCES[resource];
  const columnDefinitions = columns.map((column) => ({ ...column, format: column.name === "Name" ? "name" : "", priority: 0 }));
  return {
    kind: "Table",
    apiVersion: "meta.k8s.io/v1",
    metadata: opts.version === undefined ? {} : { resourceVersion: opts.version },
    columnDefinitions: opts.hasColumns === false ? null : columnDefinitions,
    rows: objects.map((object) => ({ cells: cellsOf(resource, object), ...rowObject(object, opts.include) })),
  };
}

function rowObject(object: KubernetesObject, include: string | null): object {
  if (include === "None") return {};
  if (include === "Object") return { object };
  return { object: metadataOf(object) };
}

function cellsOf(resource: Resource, { metadata, spec, status }: KubernetesObject): unknown[] {
  const { name, creationTimestamp, annotations = {} } = metadata;
  const age = ageOf(creationTimestamp);
  if (resource === "sandboxes") return [name, annotations["forkd.dev/state"], annotations[SNAPSHOT_ANNOTATION], status?.["nodeName"], age];
  if (resource === "sandboxclaims") {
    const [ready] = (status?.["conditions"] ?? []) as { status?: string }[];
    const sandbox = status?.["sandbox"];
    return [name, ready?.status ?? "Unknown", isRecord(sandbox) ? sandbox["name"] : "", age];
  }
  if (resource === "sandboxtemplates") return [name, status?.["snapshot"], age];
  const template = spec["sandboxTemplateRef"];
  return [name, isRecord(template) ? template["name"] : "", spec["replicas"] ?? 0, age];
}

/** As kubectl shows it: 42s, 5m, 3h, 2d */
export function ageOf(creationTimestamp: string, nowMs: number = Date.now()): string {
  const secs = Math.max(0, Math.floor((nowMs - Date.parse(creationTimestamp)) / 1000));
  if (secs < 120) return `${secs}s`;
  if (secs < 2 * 3600) return `${Math.floor(secs / 60)}m`;
  if (secs < 48 * 3600) return `${Math.floor(secs / 3600)}h`;
  return `${Math.floor(secs / 86_400)}d`;
}
