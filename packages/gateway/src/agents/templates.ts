// Templates and warm pools: few objects, kept in the state of the cluster. A pool is the number of VMMs that wait for a
// fork of its template's snapshot.

import { randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { Conflict, type Stored } from "../state/state.ts";
import { namespaceIn, type Agents, type Call, type Store } from "./call.ts";
import { Refused } from "./inner.ts";
import { isRecord, objectOf, timeOf, type Given, type KubernetesObject } from "./objects.ts";
import { readPodTemplate } from "./pod-template.ts";
import { invalid, refusal, type Cause } from "./refusal.ts";

const KIND = "templates";
const MAX_REPLICAS = 1000;
const POLICIES = ["Allowed", "Overrides", "Disallowed"];

type Kept = "sandboxtemplates" | "sandboxwarmpools";
/** Short: a key of the state, with namespace and name, may have 140 characters */
const PREFIX: Readonly<Record<Kept, string>> = { sandboxtemplates: "template", sandboxwarmpools: "pool" };
type Record_ = {
  uid: string;
  created_at_unix: number;
  labels: Record<string, string>;
  annotations: Record<string, string>;
  spec: Record<string, unknown>;
};

export const templates: Store = storeOf("sandboxtemplates", (call, given) => {
  const { spec, annotations } = given;
  const { podTemplate, networkPolicy, networkPolicyManagement = "Unmanaged", envVarsInjectionPolicy = "Disallowed", ...others } = spec;
  const read = readPodTemplate(podTemplate, "spec.podTemplate", { annotations });
  const causes: Cause[] = [...read.causes];
  if (networkPolicy !== undefined && networkPolicy !== null)
    causes.push({ field: "spec.networkPolicy", message: "the network policy of a sandbox is that of its snapshot" });
  if (networkPolicyManagement !== "Unmanaged")
    causes.push({
      field: "spec.networkPolicyManagement",
      message: "must be Unmanaged: forkd enforces the snapshot's policy, not one of Kubernetes",
    });
  if (!POLICIES.includes(String(envVarsInjectionPolicy)))
    causes.push({ field: "spec.envVarsInjectionPolicy", message: `must be one of ${POLICIES.join(", ")}` });
  for (const [field, value] of Object.entries(others))
    if (!(value === null || value === false || value === "Disallowed" || (Array.isArray(value) && value.length === 0)))
      causes.push({ field: `spec.${field}`, message: "a microVM of forkd does not have this" });
  if (causes.length === 0) call.warnings.push(...read.warnings);
  return causes;
});

export const pools: Store = storeOf("sandboxwarmpools", (_call, { spec }) => {
  const { replicas = 0, sandboxTemplateRef, updateStrategy: _asAlways, ...others } = spec;
  const causes: Cause[] = [];
  if (!Number.isInteger(replicas) || (replicas as number) < 0 || (replicas as number) > MAX_REPLICAS)
    causes.push({ field: "spec.replicas", message: `must be 0 to ${MAX_REPLICAS}` });
  if (!isRecord(sandboxTemplateRef) || typeof sandboxTemplateRef["name"] !== "string")
    causes.push({ field: "spec.sandboxTemplateRef.name", message: "is required" });
  for (const [field, value] of Object.entries(others)) if (value !== null) causes.push({ field: `spec.${field}`, message: "is not known" });
  return causes;
});

export function templateOf(call: Call, name: string): Record_ | undefined {
  return find(call.agents, "sandboxtemplates", namespaceIn(call), name)?.record;
}

export function poolOf(call: Call, name: string): { template: string } | undefined {
  const found = find(call.agents, "sandboxwarmpools", namespaceIn(call), name);
  return found && { template: templateIn(found.record.spec) };
}

/** How many VMMs the pools of a project want for a tag of it */
export function poolFor(state: Agents["state"], project: string, tag: string): number {
  return waiting({ state }, project).get(tag) ?? 0;
}

/** Notes the stored objects in the journal: all of them at the start, one after its change */
export function noteStored({ state, journal }: Pick<Agents, "state" | "journal">, only?: string): void {
  const keys = only === undefined ? [...state.all(KIND).keys()] : [only];
  for (const key of keys) {
    const { resource, namespace, name } = partsOf(key);
    const stored = state.get(KIND, key);
    journal.note(resource, { namespace, name }, stored ? shown(state, resource, namespace, name, recordOf(stored)) : null);
  }
}

function storeOf(resource: Kept, check: (call: Call, given: Given) => Cause[]): Store {
  const objectFor = (call: Call, name: string, record: Record_): KubernetesObject => {
    const { journal, state } = call.agents;
    return journal.versioned(resource, shown(state, resource, namespaceIn(call), name, record));
  };
  const accepted = (call: Call, given: Given): void => {
    const causes = check(call, given);
    if (causes.length > 0) throw invalid(`${resource} ${given.name}`, causes);
  };
  return {
    list: async ({ agents: { state, journal }, namespace }) =>
      [...state.all(KIND)].flatMap(([key, stored]) => {
        const parts = partsOf(key);
        if (parts.resource !== resource || (namespace !== null && parts.namespace !== namespace)) return [];
        return [journal.versioned(resource, shown(state, resource, parts.namespace, parts.name, recordOf(stored)))];
      }),
    get: async (call, name) => {
      const found = find(call.agents, resource, namespaceIn(call), name);
      return found ? objectFor(call, name, found.record) : null;
    },
    create: async (call, given) => {
      accepted(call, given);
      const { labels, annotations, spec, name } = given;
      const record: Record_ = { uid: randomUUID(), created_at_unix: Math.floor(Date.now() / 1000), labels, annotations, spec };
      if (find(call.agents, resource, namespaceIn(call), name))
        throw refusal("AlreadyExists", `${resource} ${JSON.stringify(name)} already exists`);
      await write(call, resource, name, record, null);
      return objectFor(call, name, record);
    },
    update: async (call, given) => {
      accepted(call, given);
      const { labels, annotations, spec, name } = given;
      const found = find(call.agents, resource, namespaceIn(call), name);
      if (!found) throw refusal("NotFound", `${resource} ${JSON.stringify(name)} not found`);
      const record = { ...found.record, labels, annotations, spec };
      if (!isDeepStrictEqual(record, found.record)) await write(call, resource, name, record, found.version);
      return objectFor(call, name, record);
    },
    remove: async (call, { metadata: { name } }) => {
      const found = find(call.agents, resource, namespaceIn(call), name);
      if (found) await write(call, resource, name, null, found.version);
    },
  };
}

async function write(call: Call, resource: Kept, name: string, record: Record_ | null, replaces: string | null): Promise<void> {
  const { agents, isDryRun } = call;
  const namespace = namespaceIn(call);
  if (isDryRun) return;
  const key = keyOf(resource, namespace, name);
  const before = waiting(agents, namespace);
  try {
    if (record) await agents.state.put(KIND, key, record, replaces);
    else await agents.state.remove(KIND, key, replaces ?? "");
  } catch (error) {
    throw error instanceof Conflict
      ? refusal("Conflict", `${resource} ${JSON.stringify(name)} was changed meanwhile: read it again.`)
      : error;
  }
  noteStored(agents, key);
  const after = waiting(agents, namespace);
  for (const snapshot of new Set([...before.keys(), ...after.keys()])) {
    const pool = after.get(snapshot) ?? 0;
    if (pool === before.get(snapshot)) continue;
    const path = `/v1/snapshots/${encodeURIComponent(snapshot)}`;
    // pools are the operator's on a daemon; here the rights on SandboxWarmPools say who may set them
    const caller = { ...call.caller, identity: { ...call.caller.identity, scope: "operator" as const } };
    const reply = await agents.inner.ask({ method: "PATCH", path, body: { pool } }, caller);
    if (reply.status >= 300) call.warnings.push(`the pool of snapshot ${snapshot} was not set: ${new Refused(reply).message}`);
  }
}

/** How many VMMs the pools of a namespace want for each snapshot */
function waiting(agents: Pick<Agents, "state">, namespace: string): Map<string, number> {
  const wanted = new Map<string, number>();
  for (const [key, stored] of agents.state.all(KIND)) {
    const parts = partsOf(key);
    if (parts.resource !== "sandboxwarmpools" || parts.namespace !== namespace) continue;
    const { spec } = recordOf(stored);
    const template = find(agents, "sandboxtemplates", namespace, templateIn(spec));
    const snapshot = template && snapshotIn(template.record);
    if (snapshot !== undefined) wanted.set(snapshot, (wanted.get(snapshot) ?? 0) + Number(spec["replicas"] ?? 0));
  }
  return wanted;
}

function shown(state: Agents["state"], resource: Kept, namespace: string, name: string, record: Record_): KubernetesObject {
  const { uid, created_at_unix: created, labels, annotations, spec } = record;
  const metadata = { name, namespace, uid, creationTimestamp: timeOf(created), labels, annotations };
  if (resource === "sandboxtemplates") return objectOf(resource, metadata, { spec, status: { snapshot: snapshotIn(record) ?? "" } });
  const hasTemplate = state.get(KIND, keyOf("sandboxtemplates", namespace, templateIn(spec))) !== undefined;
  const replicas = hasTemplate ? Number(spec["replicas"] ?? 0) : 0;
  return objectOf(resource, metadata, { spec, status: { replicas, readyReplicas: replicas } });
}

function find(
  { state }: Pick<Agents, "state">,
  resource: Kept,
  namespace: string,
  name: string,
): { record: Record_; version: string } | undefined {
  const stored = state.get(KIND, keyOf(resource, namespace, name));
  return stored && { record: recordOf(stored), version: stored.version };
}

function recordOf({ value }: Stored): Record_ {
  return value as Record_;
}

function keyOf(resource: Kept, namespace: string, name: string): string {
  return `${PREFIX[resource]}~${namespace}~${name}`;
}

function partsOf(key: string): { resource: Kept; namespace: string; name: string } {
  const [prefix, namespace = "", name = ""] = key.split("~");
  return { resource: prefix === PREFIX.sandboxtemplates ? "sandboxtemplates" : "sandboxwarmpools", namespace, name };
}

function templateIn(spec: Record<string, unknown>): string {
  const reference = spec["sandboxTemplateRef"];
  return isRecord(reference) ? String(reference["name"]) : "";
}

function snapshotIn({ spec, annotations }: Record_): string | undefined {
  const { snapshot } = readPodTemplate(spec["podTemplate"], "spec.podTemplate", { annotations }).wanted;
  return snapshot === "" ? undefined : snapshot;
}
