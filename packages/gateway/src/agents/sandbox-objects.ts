// A sandbox of forkd as the objects Sandbox and SandboxClaim.

import { keptIn } from "./kept.ts";
import { objectOf, timeOf, uidOf, type Condition, type KubernetesObject } from "./objects.ts";
import type { SandboxInfo } from "@forkd/daemon/api/sandbox";

/** DNS-1123: what a name in Kubernetes may be */
export const OBJECT_NAME = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const NAMESPACE = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const ID = "forkd.dev/id";
const SNAPSHOT = "forkd.dev/snapshot";
const STATE = "forkd.dev/state";
const ISOLATION = "forkd.dev/isolation";
/** Annotations that are facts: what a client sends for them is not kept */
export const FACTS: ReadonlySet<string> = new Set([ID, STATE, ISOLATION]);

/** A project is the namespace of its name; null: its name is none of a namespace */
export function namespaceOf(project: string): string | null {
  return NAMESPACE.test(project) ? project : null;
}

/** The sandbox's name, or its id if it has none that Kubernetes allows */
export function nameOf({ name, id }: SandboxInfo): string {
  return name !== null && OBJECT_NAME.test(name) ? name : id;
}

/** @param node code of the node that has it */
export function sandboxObject(info: SandboxInfo, node: string): KubernetesObject {
  const { id, project, snapshot_tag: snapshot, created_at_unix: created, expires_at_unix: expires, state } = info;
  const kept = keptIn(info.metadata);
  const spec = { ...(kept?.spec ?? { podTemplate: { spec: { containers: [{ name: "sandbox", image: snapshot }] } } }) };
  const lifetime =
    expires === null ? {} : { shutdownTime: timeOf(expires), shutdownPolicy: info.on_timeout === "end" ? "Delete" : "Retain" };
  const annotations = { [SNAPSHOT]: snapshot, ...kept?.annotations, [ID]: id, [STATE]: state, [ISOLATION]: info.isolation };
  const labels = { ...kept?.labels, ...(kept?.claim ? { "forkd.dev/claim": kept.claim.name } : {}) };
  const metadata = {
    name: nameOf(info),
    namespace: project,
    uid: uidOf("Sandbox", id),
    creationTimestamp: timeOf(created),
    labels,
    annotations,
  };
  const operatingMode = state === "suspended" ? "Suspended" : "Running";
  const status = {
    conditions: conditionsOf(info),
    nodeName: node,
    selector: `forkd.dev/id=${id}`,
  };
  return objectOf("sandboxes", metadata, { spec: { ...spec, ...lifetime, operatingMode }, status });
}

/** null: no claim made it */
export function claimObject(info: SandboxInfo): KubernetesObject | null {
  const claim = keptIn(info.metadata)?.claim;
  if (!claim) return null;
  const { id, project, created_at_unix: created, expires_at_unix: expires } = info;
  const { name, labels, annotations, spec } = claim;
  const metadata = { name, namespace: project, uid: uidOf("SandboxClaim", id), creationTimestamp: timeOf(created), labels, annotations };
  const { lifecycle: _given, ...rest } = spec;
  const lifecycle =
    expires === null
      ? {}
      : { lifecycle: { shutdownTime: timeOf(expires), shutdownPolicy: info.on_timeout === "end" ? "Delete" : "Retain" } };
  const [ready] = conditionsOf(info);
  return objectOf("sandboxclaims", metadata, {
    spec: { ...rest, ...lifecycle },
    status: { conditions: [ready], sandbox: { name: nameOf(info) } },
  });
}

/** Ready is the first */
function conditionsOf({ state, reason, created_at_unix: created, last_active_unix: active }: SandboxInfo): [Condition, ...Condition[]] {
  const since = timeOf(state === "running" ? created : active);
  const condition = (type: string, isTrue: boolean, why: string, message: string): Condition => ({
    type,
    status: isTrue ? "True" : "False",
    reason: why,
    message,
    lastTransitionTime: since,
  });
  const isOver = state === "ended" || state === "lost";
  const reasons = {
    running: "DependenciesReady",
    paused: "SandboxPaused",
    suspended: "SandboxSuspended",
    ended: "PodFailed",
    lost: "PodFailed",
  };
  const text = isOver ? (reason ?? `The sandbox is ${state}.`) : `The sandbox is ${state}.`;
  const ready = condition("Ready", state === "running", reasons[state], text);
  const suspended = condition("Suspended", state === "suspended", state === "suspended" ? "SandboxSuspended" : "SandboxNotSuspended", text);
  return isOver ? [ready, suspended, condition("Finished", true, "PodFailed", text)] : [ready, suspended];
}
