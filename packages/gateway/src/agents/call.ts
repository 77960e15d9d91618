// One request of a client of Kubernetes, and what answers it.

import type { ClusterProjects } from "../state/projects.ts";
import type { ClusterState } from "../state/state.ts";
import type { Inner, Caller } from "./inner.ts";
import type { Journal } from "./journal.ts";
import type { SandboxIndex } from "./sandbox-index.ts";
import type { KubernetesObject, Given } from "./objects.ts";

export type Agents = {
  inner: Inner;
  journal: Journal;
  index: SandboxIndex;
  state: ClusterState;
  projects: Pick<ClusterProjects, "get">;
};

export type Call = {
  agents: Agents;
  caller: Caller;
  /** also the project; null: all, in lists */
  namespace: string | null;
  signal: AbortSignal;
  /** nothing is changed */
  isDryRun: boolean;
  /** shown by kubectl */
  warnings: string[];
};

/** What a client can do with the objects of one resource */
export type Store = {
  list(call: Call): Promise<KubernetesObject[]>;
  /** null: there is none */
  get(call: Call, name: string): Promise<KubernetesObject | null>;
  create(call: Call, given: Given): Promise<KubernetesObject>;
  /** @param current the object that `given` replaces */
  update(call: Call, given: Given, current: KubernetesObject): Promise<KubernetesObject>;
  remove(call: Call, current: KubernetesObject): Promise<void>;
};

export function namespaceIn({ namespace }: Call): string {
  return namespace ?? "default";
}
