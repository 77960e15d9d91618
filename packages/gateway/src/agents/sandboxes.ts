// Sandboxes and claims of Kubernetes: each is a sandbox of forkd, and nothing else is stored.

import { isDeepStrictEqual } from "node:util";
import { ForkdError } from "@forkd/runtime/errors";
import { EVERY_PROJECT } from "@forkd/daemon/store/project-names";
import { namespaceIn, type Call, type Store } from "./call.ts";
import { Refused, type Caller } from "./inner.ts";
import { keptIn, withKept, type Kept } from "./kept.ts";
import { readLifetime, type Lifetime } from "./lifetime.ts";
import { isRecord, objectOf, uidOf, timeOf, type Given, type KubernetesObject } from "./objects.ts";
import { readPodTemplate, SNAPSHOT_ANNOTATION, type Wanted } from "./pod-template.ts";
import { invalid, refusal, type Cause } from "./refusal.ts";
import { apiVersionOf, SANDBOX_GROUP, type Subresource } from "./resources.ts";
import { nameOf, namespaceOf } from "./sandbox-objects.ts";
import { poolOf, templateOf } from "./templates.ts";
import type { ForkedSandboxes } from "@forkd/daemon/api/branch";
import type { SandboxInfo } from "@forkd/daemon/api/sandbox";
import type { SnapshotInfo } from "@forkd/daemon/api/snapshot";

const STATES = "running,paused,suspended,ended,lost";
const UNREACHABLE = "x-forkd-unreachable";
const MAX_REPLICAS = 1000;

type Shown = "sandboxes" | "sandboxclaims";

export const sandboxes: Store = {
  list: async (call) => listed(call, "sandboxes"),
  get: async (call, name) => objectFor(call, "sandboxes", await find(call, "sandboxes", name)),
  create: async (call, given) => {
    const { spec, labels, annotations, name } = given;
    const causes: Cause[] = [];
    const { podTemplate, shutdownTime, shutdownPolicy, operatingMode = "Running", ...others } = spec;
    refuseOthers(others, { service: "a sandbox is reached through the gateway; there is no Service for it" }, causes);
    if (operatingMode !== "Running")
      causes.push({ field: "spec.operatingMode", message: "a sandbox starts with Running; suspend it then" });
    const read = readPodTemplate(podTemplate, "spec.podTemplate", { annotations });
    const lifetime = readLifetime({ shutdownTime, shutdownPolicy }, "spec", causes);
    accept(call, `Sandbox ${name}`, [...causes, ...read.causes], read.warnings);
    const kept = { labels, annotations, spec: { podTemplate } };
    return fork(call, { resource: "sandboxes", given, wanted: read.wanted, lifetime, kept });
  },
  update: async (call, given, current) => updated(call, "sandboxes", given, current),
  remove: async (call, current) => removed(call, "sandboxes", current),
};

export const claims: Store = {
  list: async (call) => listed(call, "sandboxclaims"),
  get: async (call, name) => objectFor(call, "sandboxclaims", await find(call, "sandboxclaims", name)),
  create: async (call, given) => {
    const { spec, labels, annotations, name } = given;
    const { warmPoolRef, lifecycle = {}, env = [], additionalPodMetadata = {}, ...others } = spec;
    const causes: Cause[] = [];
    refuseOthers(others, {}, causes);
    const pool = isRecord(warmPoolRef) && typeof warmPoolRef["name"] === "string" ? warmPoolRef["name"] : "";
    const found = poolOf(call, pool);
    if (!found)
      causes.push({ field: "spec.warmPoolRef.name", message: `there is no SandboxWarmPool ${JSON.stringify(pool)} in this namespace` });
    const template = found && templateOf(call, found.template);
    if (found && !template)
      causes.push({ field: "spec.warmPoolRef.name", message: `its SandboxTemplate ${JSON.stringify(found.template)} does not exist` });
    const lifetime = readLifetime(isRecord(lifecycle) ? lifecycle : {}, "spec.lifecycle", causes);
    if (!template) throw invalid(`SandboxClaim ${name}`, causes);
    const read = readPodTemplate(template.spec["podTemplate"], "spec.podTemplate", { annotations: template.annotations });
    const wanted = {
      ...read.wanted,
      env: { ...read.wanted.env, ...readEnv(env, template.spec["envVarsInjectionPolicy"], read.wanted.env, causes) },
    };
    accept(call, `SandboxClaim ${name}`, [...causes, ...read.causes], []);
    const claim = { name, labels, annotations, spec };
    const kept = {
      ...podMetadata(template.spec["podTemplate"], additionalPodMetadata),
      spec: { podTemplate: template.spec["podTemplate"] },
      claim,
    };
    return fork(call, { resource: "sandboxclaims", given, wanted, lifetime, kept });
  },
  update: async (call, given, current) => updated(call, "sandboxclaims", given, current),
  remove: async (call, current) => removed(call, "sandboxclaims", current),
};

/** POST of a subresource. Throws NotFound */
export async function act(call: Call, name: string, sub: Subresource, body: unknown): Promise<object> {
  const info = await find(call, "sandboxes", name);
  if (!info) throw notFound("sandboxes", name);
  const spec = isRecord(body) && isRecord(body["spec"]) ? body["spec"] : {};
  if (call.isDryRun) throw refusal("BadRequest", `${sub} cannot be tried: dryRun is for objects.`);
  if (sub === "branch") return branch(call, info, spec);
  if (sub === "fork") return forkLive(call, info, spec);
  return noted(call, "sandboxes", await change(call, info.id, `/${sub}`, undefined));
}

export function notFound(resource: Shown | "sandboxtemplates" | "sandboxwarmpools", name: string): ForkdError {
  const group = resource === "sandboxes" ? SANDBOX_GROUP : `extensions.${SANDBOX_GROUP}`;
  return refusal("NotFound", `${resource}.${group} ${JSON.stringify(name)} not found`);
}

async function listed(call: Call, resource: Shown): Promise<KubernetesObject[]> {
  const { agents, namespace, signal, warnings } = call;
  const asOf = agents.journal.tick();
  const caller = namespace === null ? everywhere(call.caller) : call.caller;
  const reply = await agents.inner.ask({ method: "GET", path: `/v1/sandboxes?state=${STATES}`, signal }, caller);
  if (reply.status !== 200) throw new Refused(reply);
  const missing = String(reply.headers[UNREACHABLE] ?? "")
    .split(",")
    .filter(Boolean);
  if (missing.length > 0) warnings.push(`node ${missing.join(", ")} does not answer: its sandboxes are not listed`);
  const infos = (reply.body as SandboxInfo[]).filter(({ project }) => namespaceOf(project) !== null);
  const covers = ({ metadata, status }: KubernetesObject): boolean =>
    (namespace === null || metadata.namespace === namespace) && !missing.includes(String(status?.["nodeName"]));
  for (const id of agents.index.noteAll(infos, covers, asOf)) {
    const { status, body } = await agents.inner.ask({ method: "GET", path: pathOf(id), signal }, caller);
    if (status === 404) agents.index.gone(id, asOf);
    if (status !== 200) continue;
    // it moved to another node while the nodes were asked
    agents.index.note(body as SandboxInfo, asOf);
    infos.push(body as SandboxInfo);
  }
  return infos.flatMap((info) => {
    const object = agents.index.object(resource, info);
    return object ? [agents.journal.versioned(resource, object)] : [];
  });
}

/** By the id that is known for the name, because that needs one node; then by the name */
async function find(call: Call, resource: Shown, name: string): Promise<SandboxInfo | null> {
  const { agents } = call;
  const namespace = namespaceIn(call);
  const known = agents.index.idOf(resource, { namespace, name });
  for (const reference of known === undefined ? [name] : [known, name]) {
    const asOf = agents.journal.tick();
    const reply = await agents.inner.ask({ method: "GET", path: pathOf(reference), signal: call.signal }, call.caller);
    if (reply.status === 404) {
      if (known !== undefined && reference === known) agents.index.gone(known, asOf);
      continue;
    }
    if (reply.status !== 200) throw new Refused(reply);
    const info = reply.body as SandboxInfo;
    agents.index.note(info, asOf);
    if (agents.index.object(resource, info)?.metadata.name === name) return info;
  }
  return null;
}

type Fork = { resource: Shown; given: Given; wanted: Wanted; lifetime: Lifetime; kept: Kept };

async function fork(call: Call, { resource, given, wanted, lifetime, kept }: Fork): Promise<KubernetesObject> {
  const { agents, caller, signal } = call;
  const { name } = given;
  const namespace = namespaceIn(call);
  const metadata = withKept({}, kept);
  checkProject(call);
  if (call.isDryRun) {
    const meta = { name, namespace, uid: uidOf(resource, namespace, name), creationTimestamp: timeOf(Math.floor(Date.now() / 1000)) };
    return objectOf(resource, { ...meta, labels: given.labels, annotations: given.annotations }, { spec: given.spec });
  }
  // A watch from the version of the answer gets the object as a change, as one of a controller would.
  const version = agents.journal.tick();
  const { snapshot: snapshot_tag, env, isolation, limits } = wanted;
  const request = { snapshot_tag, name, env, metadata, ...limits, ...lifetime, ...(isolation ? { isolation } : {}) };
  const [info] = await agents.inner
    .get<SandboxInfo[]>({ method: "POST", path: "/v1/sandboxes", body: request, signal }, caller)
    .catch((error: unknown) => {
      throw named(error, resource, name, snapshot_tag);
    });
  if (!info) throw new ForkdError("INTERNAL", "The fork has no sandbox.");
  try {
    for (const path of wanted.directories)
      await agents.inner.get({ method: "POST", path: `${pathOf(info.id)}/files/mkdir`, body: { path, parents: true }, signal }, caller);
  } catch (error) {
    await agents.inner.ask({ method: "DELETE", path: pathOf(info.id) }, caller);
    throw error;
  }
  const object = noted(call, resource, info);
  return { ...object, metadata: { ...object.metadata, resourceVersion: String(version) } };
}

async function updated(call: Call, resource: Shown, given: Given, current: KubernetesObject): Promise<KubernetesObject> {
  const info = await find(call, resource, given.name);
  if (!info) throw notFound(resource, given.name);
  const causes: Cause[] = [];
  const before = changeable(resource, current.spec);
  const after = changeable(resource, given.spec);
  for (const field of new Set([...Object.keys(before.fixed), ...Object.keys(after.fixed)]))
    if (!isDeepStrictEqual(before.fixed[field], after.fixed[field])) causes.push({ field: `spec.${field}`, message: "cannot be changed" });
  const place = resource === "sandboxes" ? "spec" : "spec.lifecycle";
  const hasNewLifetime = !isDeepStrictEqual(before.lifetime, after.lifetime);
  const lifetime = hasNewLifetime ? { ttl_secs: null, ...readLifetime(after.lifetime, place, causes) } : {};
  const { mode } = after;
  if (mode !== "Running" && mode !== "Suspended") causes.push({ field: "spec.operatingMode", message: "must be Running or Suspended" });
  if (causes.length > 0) throw invalid(`${current.kind} ${given.name}`, causes);
  if (call.isDryRun)
    return { ...current, metadata: { ...current.metadata, labels: given.labels, annotations: given.annotations }, spec: given.spec };
  const metadata = withKept(info.metadata, changedKept(resource, info, given));
  const changes = { ...(isDeepStrictEqual(metadata, info.metadata) ? {} : { metadata }), ...lifetime };
  let latest = Object.keys(changes).length === 0 ? info : await change(call, info.id, "", changes);
  if (mode !== before.mode) latest = await change(call, info.id, mode === "Suspended" ? "/suspend" : "/resume", undefined);
  return noted(call, resource, latest);
}

function changeable(
  resource: Shown,
  spec: Record<string, unknown>,
): { fixed: Record<string, unknown>; lifetime: Record<string, unknown>; mode: unknown } {
  if (resource === "sandboxclaims") {
    const { lifecycle, ...fixed } = spec;
    return { fixed, lifetime: isRecord(lifecycle) ? lifecycle : {}, mode: "Running" };
  }
  const { shutdownTime, shutdownPolicy, operatingMode: mode = "Running", ...fixed } = spec;
  const lifetime = shutdownTime === undefined ? {} : { shutdownTime, ...(shutdownPolicy === undefined ? {} : { shutdownPolicy }) };
  return { fixed, lifetime, mode };
}

/** Annotations that say what forkd knows anyway are not kept */
function changedKept(resource: Shown, info: SandboxInfo, { labels, annotations, spec }: Given): Kept {
  const kept = keptIn(info.metadata) ?? { labels: {}, annotations: {}, spec: { podTemplate: spec["podTemplate"] } };
  if (resource === "sandboxclaims" && kept.claim) return { ...kept, claim: { ...kept.claim, labels, annotations } };
  const { [SNAPSHOT_ANNOTATION]: snapshot, ...others } = annotations;
  const isOwn = kept.annotations[SNAPSHOT_ANNOTATION] !== undefined || snapshot !== info.snapshot_tag;
  return { ...kept, labels, annotations: isOwn ? annotations : others };
}

async function removed(call: Call, resource: Shown, { metadata: { name } }: KubernetesObject): Promise<void> {
  const { agents, caller, isDryRun } = call;
  const info = await find(call, resource, name);
  if (!info) throw notFound(resource, name);
  if (isDryRun) return;
  const reply = await agents.inner.ask({ method: "DELETE", path: pathOf(info.id) }, caller);
  if (reply.status >= 300 && reply.status !== 404) throw new Refused(reply);
  agents.index.gone(info.id);
}

async function branch(call: Call, info: SandboxInfo, spec: Record<string, unknown>): Promise<object> {
  const { tag, description, ...others } = spec;
  refuseAll(others, "SandboxBranch");
  const path = `${pathOf(info.id)}/branch`;
  const made = await call.agents.inner.get<SnapshotInfo>(
    { method: "POST", path, body: { tag, description }, signal: call.signal },
    call.caller,
  );
  const { tag: name, id, pause_us: pauseUs, delta_bytes: deltaBytes, created_at_unix: created } = made;
  const metadata = { name, namespace: namespaceIn(call), creationTimestamp: timeOf(created) };
  return {
    apiVersion: apiVersionOf(SANDBOX_GROUP),
    kind: "SandboxBranch",
    metadata,
    spec,
    status: { snapshot: name, id, pauseUs, deltaBytes },
  };
}

async function forkLive(call: Call, info: SandboxInfo, spec: Record<string, unknown>): Promise<object> {
  const { agents, caller, signal } = call;
  const { replicas = 1, tag, labels = {}, annotations = {}, env = [], shutdownTime, shutdownPolicy, ...others } = spec;
  refuseAll(others, "SandboxFork");
  const causes: Cause[] = [];
  if (!Number.isInteger(replicas) || (replicas as number) < 1 || (replicas as number) > MAX_REPLICAS)
    causes.push({ field: "spec.replicas", message: `must be 1 to ${MAX_REPLICAS}` });
  if (!isRecord(labels) || !isRecord(annotations))
    causes.push({ field: "spec.labels, spec.annotations", message: "must be objects of texts" });
  const lifetime = readLifetime({ shutdownTime, shutdownPolicy }, "spec", causes);
  const added = readEnv(env, "Overrides", {}, causes);
  if (causes.length > 0) throw invalid("SandboxFork", causes);
  const own = { labels: labels as Record<string, string>, annotations: annotations as Record<string, string> };
  const podTemplate = keptIn(info.metadata)?.spec["podTemplate"] ?? objectFor(call, "sandboxes", info)?.spec["podTemplate"];
  const metadata = withKept({}, { ...own, spec: { podTemplate } });
  const asOf = agents.journal.tick();
  const request = { n: replicas, tag, metadata, ...lifetime, ...(Object.keys(added).length > 0 ? { env: added } : {}) };
  const path = `${pathOf(info.id)}/fork`;
  const made = await agents.inner.get<ForkedSandboxes>({ method: "POST", path, body: request, signal }, caller);
  for (const child of made.sandboxes) agents.index.note(child, asOf);
  const status = { snapshot: made.snapshot.tag, sandboxes: made.sandboxes.map((child) => ({ name: nameOf(child), id: child.id })) };
  const meta = { name: nameOf(info), namespace: namespaceIn(call), creationTimestamp: timeOf(made.snapshot.created_at_unix) };
  return { apiVersion: apiVersionOf(SANDBOX_GROUP), kind: "SandboxFork", metadata: meta, spec, status };
}

/** POST of an action, or PATCH with a body */
async function change({ agents, caller, signal }: Call, id: string, action: string, body: object | undefined): Promise<SandboxInfo> {
  const method = action === "" ? "PATCH" : "POST";
  return agents.inner.get<SandboxInfo>({ method, path: `${pathOf(id)}${action}`, body, signal }, caller);
}

function noted({ agents }: Call, resource: Shown, info: SandboxInfo): KubernetesObject {
  agents.index.note(info, agents.journal.tick());
  const object = agents.index.object(resource, info);
  if (!object) throw notFound(resource, info.name ?? info.id);
  return agents.journal.versioned(resource, object);
}

function objectFor({ agents }: Call, resource: Shown, info: SandboxInfo | null): KubernetesObject | null {
  return info && agents.index.object(resource, info);
}

function checkProject({ agents, namespace }: Call): void {
  try {
    agents.projects.get(namespace ?? "");
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code !== "NOT_FOUND") throw error;
    throw refusal(
      "NotFound",
      `namespaces ${JSON.stringify(namespace)} has no project of forkd: 'forkd project create ${namespace}' makes it.`,
    );
  }
}

/** Refusals of the fork, with the names that the client used */
function named(error: unknown, resource: Shown, name: string, snapshot: string): unknown {
  if (!(error instanceof Refused)) return error;
  if (error.code === "EXISTS") return refusal("AlreadyExists", `${resource} ${JSON.stringify(name)} already exists`);
  if (error.code === "NOT_FOUND")
    return invalid(resource, [
      { field: "spec.podTemplate.spec.containers[0].image", message: `there is no snapshot ${JSON.stringify(snapshot)}` },
    ]);
  return error;
}

function readEnv(env: unknown, policy: unknown, own: Record<string, string>, causes: Cause[]): Record<string, string> {
  const added: Record<string, string> = {};
  if (!Array.isArray(env)) causes.push({ field: "spec.env", message: "must be a list" });
  else if (env.length > 0 && policy !== "Allowed" && policy !== "Overrides")
    causes.push({ field: "spec.env", message: "the template does not allow it: its envVarsInjectionPolicy is not Allowed or Overrides" });
  else
    for (const [at, entry] of env.entries()) {
      const { name, value = "" } = isRecord(entry) ? entry : {};
      if (typeof name !== "string" || !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || typeof value !== "string")
        causes.push({ field: `spec.env[${at}].name`, message: "must be a name of letters, digits and '_', with a text as its value" });
      else if (own[name] !== undefined && policy !== "Overrides")
        causes.push({ field: `spec.env[${at}].name`, message: "the template has this variable, and does not allow to override it" });
      else added[name] = value;
    }
  return added;
}

function podMetadata(template: unknown, additional: unknown): Pick<Kept, "labels" | "annotations"> {
  const of = (value: unknown, key: string): Record<string, string> =>
    isRecord(value) && isRecord(value[key]) ? (value[key] as Record<string, string>) : {};
  const metadata = isRecord(template) ? template["metadata"] : {};
  return {
    labels: { ...of(metadata, "labels"), ...of(additional, "labels") },
    annotations: { ...of(metadata, "annotations"), ...of(additional, "annotations") },
  };
}

/** Fields that ask for nothing are accepted */
function refuseOthers(others: Record<string, unknown>, whys: Record<string, string>, causes: Cause[]): void {
  for (const [field, value] of Object.entries(others)) {
    const isEmpty = value === null || value === false || (Array.isArray(value) && value.length === 0);
    if (!isEmpty) causes.push({ field: `spec.${field}`, message: whys[field] ?? "a microVM of forkd does not have this" });
  }
}

function refuseAll(others: Record<string, unknown>, kind: string): void {
  const causes = Object.keys(others).map((field) => ({ field: `spec.${field}`, message: "is not known" }));
  if (causes.length > 0) throw invalid(kind, causes);
}

function accept({ warnings }: Call, what: string, causes: readonly Cause[], more: readonly string[]): void {
  if (causes.length > 0) throw invalid(what, causes);
  warnings.push(...more);
}

function everywhere({ identity, remote }: Caller): Caller {
  return { identity: { ...identity, project: EVERY_PROJECT, scope: "operator" }, remote };
}

function pathOf(reference: string): string {
  return `/v1/sandboxes/${encodeURIComponent(reference)}`;
}
