// What a pod template asks for, as a fork: the snapshot and its options. What a microVM does not have is refused by name.

import { QUALIFIED_NAME } from "@forkd/runtime/util/name";
import { isRecord } from "./objects.ts";
import type { Cause } from "./refusal.ts";

/** On a sandbox, a template or its podTemplate: the snapshot, instead of the container's image */
export const SNAPSHOT_ANNOTATION = "forkd.dev/snapshot";
const RUNTIME = "forkd";
/** Demands KVM */
const KVM_RUNTIME = "forkd-kvm";
const ENV_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const MIB = 1024 * 1024;
/** Kubernetes' suffixes of quantities */
const UNITS: Record<string, number> = {
  "": 1,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  Ki: 1024,
  Mi: MIB,
  Gi: 1024 * MIB,
  Ti: MIB * MIB,
};

export type Wanted = {
  /** tag, or PROJECT/TAG */
  snapshot: string;
  env: Record<string, string>;
  isolation: "kvm" | undefined;
  limits: { memory_limit_mib?: number; cpu_limit?: number };
  /** made in the guest after the fork */
  directories: string[];
};

/** `causes` empty: all of it can be had. `warnings`: accepted fields without effect */
type Read = { wanted: Wanted; causes: Cause[]; warnings: string[] };

type Rule = (value: unknown, field: string, into: Read) => void;
type Rules = Record<string, Rule>;

const taken: Rule = () => undefined;
const noEffect: Rule = (_value, field, { warnings }) =>
  void warnings.push(`${field} has no effect: a sandbox is a fork of a running machine`);

function refused(why: string): Rule {
  return (_value, field, { causes }) => void causes.push({ field, message: why });
}

function only(allowed: readonly unknown[], why: string): Rule {
  return (value, field, into) => {
    if (!allowed.includes(value)) refused(why)(value, field, into);
  };
}

const NOT_OF_A_VM = "a microVM does not have this";
const PROCESSES = "the processes of a sandbox are those of its snapshot; start others with /execute or forkd exec";
const SHARED = "a microVM shares no namespace with its host";
const PLACED = "forkd places sandboxes itself";
const AS_ROOT = "programs run as root of their own machine";

const QUIET_SECURITY: Rules = {
  allowPrivilegeEscalation: only([false], AS_ROOT),
  privileged: only([false], "a microVM has no privileges on its host"),
  capabilities: (value, field, into) => walk(value, field, { drop: noEffect, add: refused(AS_ROOT) }, into),
  seccompProfile: noEffect,
};

const CONTAINER: Rules = {
  name: taken,
  image: taken,
  imagePullPolicy: noEffect,
  ports: noEffect,
  env: readEnv,
  command: refused(PROCESSES),
  args: refused(PROCESSES),
  workingDir: refused(PROCESSES),
  lifecycle: refused(PROCESSES),
  envFrom: refused("forkd reads no ConfigMap or Secret; give values in env"),
  resources: (value, field, into) =>
    walk(value, field, { requests: readRequests, limits: readLimits, claims: refused("a microVM has no devices of its host") }, into),
  volumeMounts: taken,
  volumeDevices: refused("a microVM has only its own disk"),
  livenessProbe: noEffect,
  readinessProbe: noEffect,
  startupProbe: noEffect,
  securityContext: (value, field, into) => walk(value, field, QUIET_SECURITY, into),
  terminationMessagePath: noEffect,
  terminationMessagePolicy: noEffect,
};

const POD: Rules = {
  containers: readContainers,
  initContainers: refused("a microVM has one container; prepare the machine in the snapshot"),
  ephemeralContainers: refused("a microVM has one container"),
  volumes: taken,
  restartPolicy: noEffect,
  terminationGracePeriodSeconds: noEffect,
  dnsPolicy: only(["ClusterFirst", "Default"], "forkd resolves names by the network policy of the snapshot"),
  enableServiceLinks: noEffect,
  imagePullSecrets: noEffect,
  tolerations: noEffect,
  automountServiceAccountToken: only([false], "a microVM has no account in Kubernetes"),
  serviceAccountName: only(["default"], "a microVM has no account in Kubernetes"),
  serviceAccount: only(["default"], "a microVM has no account in Kubernetes"),
  hostNetwork: only([false], SHARED),
  hostPID: only([false], SHARED),
  hostIPC: only([false], SHARED),
  hostUsers: only([false], SHARED),
  shareProcessNamespace: only([false], "a microVM has one container"),
  securityContext: (value, field, into) => walk(value, field, QUIET_SECURITY, into),
  nodeSelector: refused(PLACED),
  nodeName: refused(PLACED),
  affinity: refused(PLACED),
  topologySpreadConstraints: refused(PLACED),
  schedulerName: only(["default-scheduler"], PLACED),
  runtimeClassName: (value, field, into) => {
    if (value === KVM_RUNTIME) into.wanted.isolation = "kvm";
    else only([RUNTIME], `only ${RUNTIME} and ${KVM_RUNTIME} are known here`)(value, field, into);
  },
};

/** @param field where the template is in the object, such as spec.podTemplate */
export function readPodTemplate(template: unknown, field: string, given: { annotations: Record<string, string> }): Read {
  const wanted: Wanted = { snapshot: "", env: {}, isolation: undefined, limits: {}, directories: [] };
  const read: Read = { wanted, causes: [], warnings: [] };
  if (!isRecord(template) || !isRecord(template["spec"])) {
    read.causes.push({ field: `${field}.spec`, message: "is required" });
    return read;
  }
  const { metadata, spec } = template;
  walk(spec, `${field}.spec`, POD, read);
  readMounts(spec, `${field}.spec`, read);
  readSnapshot(spec, `${field}.spec`, { ...annotationsIn(metadata), ...given.annotations }, read);
  return read;
}

/** Fields that ask for nothing are accepted, also unknown ones */
function walk(value: unknown, field: string, rules: Rules, into: Read): void {
  if (!isRecord(value)) {
    into.causes.push({ field, message: "must be an object" });
    return;
  }
  for (const [key, given] of Object.entries(value))
    if (!asksForNothing(given)) (rules[key] ?? refused(NOT_OF_A_VM))(given, `${field}.${key}`, into);
}

function asksForNothing(value: unknown): boolean {
  if (value === null || value === undefined || value === false || value === "") return true;
  if (Array.isArray(value)) return value.length === 0;
  return isRecord(value) && Object.values(value).every(asksForNothing);
}

function readContainers(value: unknown, field: string, into: Read): void {
  if (!Array.isArray(value) || value.length !== 1) refused("a microVM has exactly one container")(value, field, into);
  else walk(value[0], `${field}[0]`, CONTAINER, into);
}

function readEnv(value: unknown, field: string, { wanted, causes }: Read): void {
  if (!Array.isArray(value)) {
    causes.push({ field, message: "must be a list" });
    return;
  }
  for (const [at, entry] of value.entries()) {
    const { name, value: text = "", valueFrom } = isRecord(entry) ? entry : {};
    if (typeof name !== "string" || !ENV_NAME.test(name) || typeof text !== "string")
      causes.push({ field: `${field}[${at}].name`, message: "must be a name of letters, digits and '_', with a text as its value" });
    else if (valueFrom !== undefined)
      causes.push({ field: `${field}[${at}].valueFrom`, message: "forkd reads no other objects; give the value" });
    else wanted.env[name] = text;
  }
}

/** Hints for a scheduler; other resources are devices */
function readRequests(value: unknown, field: string, into: Read): void {
  for (const name of Object.keys(isRecord(value) ? value : {}))
    if (name === "cpu" || name === "memory" || name === "ephemeral-storage")
      into.warnings.push(`${field}.${name} has no effect: the snapshot says how large the machine is`);
    else refused("a microVM has no such resource")(value, `${field}.${name}`, into);
}

function readLimits(value: unknown, field: string, into: Read): void {
  const { limits } = into.wanted;
  for (const [name, given] of Object.entries(isRecord(value) ? value : {})) {
    const amount = quantityOf(given);
    if (name !== "cpu" && name !== "memory") refused("a microVM has no such resource")(value, `${field}.${name}`, into);
    else if (amount === undefined || amount <= 0)
      into.causes.push({ field: `${field}.${name}`, message: "must be a quantity such as 500m or 256Mi" });
    else if (name === "cpu") limits.cpu_limit = amount;
    else limits.memory_limit_mib = Math.max(1, Math.round(amount / MIB));
  }
}

/** Directories of the guest in place of empty volumes: both are private and end with the sandbox */
function readMounts(spec: Record<string, unknown>, field: string, { wanted, causes }: Read): void {
  const volumes = Array.isArray(spec["volumes"]) ? spec["volumes"] : [];
  const empty = new Set<unknown>();
  for (const [at, volume] of volumes.entries()) {
    const { name, ...sources } = isRecord(volume) ? volume : {};
    empty.add(name);
    for (const [kind, source] of Object.entries(sources))
      if (kind !== "emptyDir" || !asksForNothing(source))
        causes.push({
          field: `${field}.volumes[${at}].${kind}`,
          message: "a microVM has only its own disk; of volumes only emptyDir: {} is known",
        });
  }
  const [container] = Array.isArray(spec["containers"]) ? (spec["containers"] as unknown[]) : [];
  const mounts = isRecord(container) && Array.isArray(container["volumeMounts"]) ? (container["volumeMounts"] as unknown[]) : [];
  for (const [at, mount] of mounts.entries()) {
    const place = `${field}.containers[0].volumeMounts[${at}]`;
    const { name, mountPath, ...more } = isRecord(mount) ? mount : {};
    const [other] = Object.entries(more).filter(([, value]) => !asksForNothing(value));
    if (other) causes.push({ field: `${place}.${other[0]}`, message: "an empty directory has no such option" });
    else if (!empty.has(name)) causes.push({ field: `${place}.name`, message: "there is no such volume" });
    else if (typeof mountPath !== "string" || !mountPath.startsWith("/") || mountPath.includes("\0"))
      causes.push({ field: `${place}.mountPath`, message: "must be an absolute path" });
    else wanted.directories.push(mountPath);
  }
}

function readSnapshot(spec: Record<string, unknown>, field: string, annotations: Record<string, string>, { wanted, causes }: Read): void {
  const [container] = Array.isArray(spec["containers"]) ? (spec["containers"] as unknown[]) : [];
  const image = isRecord(container) ? container["image"] : undefined;
  const named = annotations[SNAPSHOT_ANNOTATION];
  const reference = named ?? image;
  if (typeof reference === "string" && QUALIFIED_NAME.test(reference)) wanted.snapshot = reference;
  else if (named !== undefined)
    causes.push({ field: `annotation ${SNAPSHOT_ANNOTATION}`, message: "must be the tag of a snapshot, or PROJECT/TAG" });
  else
    causes.push({
      field: `${field}.containers[0].image`,
      message: `is not the tag of a snapshot; give that tag as image, or in the annotation ${SNAPSHOT_ANNOTATION}`,
    });
}

function annotationsIn(metadata: unknown): Record<string, string> {
  const annotations = isRecord(metadata) ? metadata["annotations"] : undefined;
  return isRecord(annotations) ? (annotations as Record<string, string>) : {};
}

/** undefined: not a quantity */
function quantityOf(value: unknown): number | undefined {
  const [, digits, unit] = /^(\d+(?:\.\d+)?)(m|k|[MGT]i?|Ki)?$/.exec(String(value)) ?? [];
  return digits === undefined ? undefined : Number(digits) * (UNITS[unit ?? ""] ?? 1);
}
