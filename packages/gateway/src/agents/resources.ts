// The kinds of the agent-sandbox API that are served, and the documents by which clients of Kubernetes discover them.

export const VERSION = "v1beta1";
export const SANDBOX_GROUP = "agents.x-k8s.io";
const EXTENSION_GROUP = "extensions.agents.x-k8s.io";
export const GROUPS = [SANDBOX_GROUP, EXTENSION_GROUP] as const;

const VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"];

export type Resource = "sandboxes" | "sandboxclaims" | "sandboxtemplates" | "sandboxwarmpools";
/** Created below a sandbox with POST */
export type Subresource = "branch" | "fork" | "resume" | "suspend";

type Column = { name: string; type: "string" | "integer" | "date"; description: string };

type ResourceInfo = { group: string; kind: string; singular: string; shortNames: string[]; columns: Column[] };

const name: Column = { name: "Name", type: "string", description: "Name of the object" };
const age: Column = { name: "Age", type: "date", description: "When it was made" };

export const RESOURCES: Readonly<Record<Resource, ResourceInfo>> = {
  sandboxes: {
    group: SANDBOX_GROUP,
    kind: "Sandbox",
    singular: "sandbox",
    shortNames: ["sbx"],
    columns: [
      name,
      { name: "State", type: "string", description: "running, paused, suspended, ended or lost" },
      { name: "Snapshot", type: "string", description: "Snapshot it was forked from" },
      { name: "Node", type: "string", description: "Node of forkd" },
      age,
    ],
  },
  sandboxclaims: {
    group: EXTENSION_GROUP,
    kind: "SandboxClaim",
    singular: "sandboxclaim",
    shortNames: [],
    columns: [
      name,
      { name: "Ready", type: "string", description: "Whether its sandbox can be used" },
      { name: "Sandbox", type: "string", description: "Name of its sandbox" },
      age,
    ],
  },
  sandboxtemplates: {
    group: EXTENSION_GROUP,
    kind: "SandboxTemplate",
    singular: "sandboxtemplate",
    shortNames: [],
    columns: [name, { name: "Snapshot", type: "string", description: "Snapshot that its sandboxes are forked from" }, age],
  },
  sandboxwarmpools: {
    group: EXTENSION_GROUP,
    kind: "SandboxWarmPool",
    singular: "sandboxwarmpool",
    shortNames: [],
    columns: [
      name,
      { name: "Template", type: "string", description: "Template of its sandboxes" },
      { name: "Replicas", type: "integer", description: "VMMs that wait for a fork on each node with the snapshot" },
      age,
    ],
  },
};

/** Kind of the request and of the answer */
const SUBRESOURCES: Readonly<Record<Subresource, string>> = {
  branch: "SandboxBranch",
  fork: "SandboxFork",
  resume: "Sandbox",
  suspend: "Sandbox",
};

export function isResource(text: string, group: string): text is Resource {
  return Object.hasOwn(RESOURCES, text) && RESOURCES[text as Resource].group === group;
}

export function isSubresource(text: string): text is Subresource {
  return Object.hasOwn(SUBRESOURCES, text);
}

export function apiVersionOf(group: string): string {
  return `${group}/${VERSION}`;
}

function resourcesOf(group: string): [Resource, ResourceInfo][] {
  return (Object.entries(RESOURCES) as [Resource, ResourceInfo][]).filter(([, info]) => info.group === group);
}

/** GET /apis */
export function groupList(): object {
  return { kind: "APIGroupList", apiVersion: "v1", groups: GROUPS.map((group) => groupOf(group)) };
}

/** GET /apis/GROUP */
export function groupOf(group: string): object {
  const version = { groupVersion: apiVersionOf(group), version: VERSION };
  return { kind: "APIGroup", apiVersion: "v1", name: group, versions: [version], preferredVersion: version };
}

/** GET /apis/GROUP/VERSION */
export function resourceList(group: string): object {
  const resources = resourcesOf(group).flatMap(([resource, { kind, singular, shortNames }]) => [
    { name: resource, singularName: singular, namespaced: true, kind, verbs: VERBS, shortNames, categories: ["all"] },
    ...subresourcesOf(resource).map(([sub, subKind]) => ({
      name: `${resource}/${sub}`,
      singularName: "",
      namespaced: true,
      kind: subKind,
      verbs: ["create"],
    })),
  ]);
  return { kind: "APIResourceList", apiVersion: "v1", groupVersion: apiVersionOf(group), resources };
}

/** All groups in one document, which newer clients ask for */
export function aggregatedDiscovery(): object {
  const items = GROUPS.map((group) => ({
    metadata: { name: group, creationTimestamp: null },
    versions: [
      {
        version: VERSION,
        freshness: "Current",
        resources: resourcesOf(group).map(([resource, { kind, singular, shortNames }]) => ({
          resource,
          responseKind: { group, version: VERSION, kind },
          scope: "Namespaced",
          singularResource: singular,
          shortNames,
          categories: ["all"],
          verbs: VERBS,
          subresources: subresourcesOf(resource).map(([sub, subKind]) => ({
            subresource: sub,
            responseKind: { group, version: VERSION, kind: subKind },
            verbs: ["create"],
          })),
        })),
      },
    ],
  }));
  return { kind: "APIGroupDiscoveryList", apiVersion: "apidiscovery.k8s.io/v2", metadata: {}, items };
}

function subresourcesOf(resource: Resource): [Subresource, string][] {
  return resource === "sandboxes" ? (Object.entries(SUBRESOURCES) as [Subresource, string][]) : [];
}
