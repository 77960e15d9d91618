// A gateway's part in a Kubernetes cluster: which daemons there are, the state, and the WarmSnapshots.

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { KubernetesApi } from "./api.ts";
import { Lease } from "./lease.ts";
import { nodesIn, type EndpointSlice } from "./slices.ts";
import { RecordSecret, type SecretObject } from "./record-secret.ts";
import { KubernetesState } from "./state.ts";
import { TagObjects } from "./tag-objects.ts";
import { GROUP, RESOURCE, type WarmSnapshot } from "./warm-snapshot.ts";
import { WarmKeeper, type KeeperParts } from "./warm-keeper.ts";

import type { NodeAddress } from "../nodes/node.ts";
import type { ClusterState } from "../state/state.ts";
import type { Cache, KubernetesObject } from "./cache.ts";

const SLICES = "discovery.k8s.io/v1";
/** Machines are in no namespace */
const MACHINES = "/api/v1/nodes";
/** Objects of deploy/kubernetes/cluster/state.yaml */
const LEASE = "forkd-gateway";
const TOKENS = "forkd-tokens";
const PROJECTS = "forkd-projects";
const TEMPLATES = "forkd-templates";
const LOGINS = "forkd-logins";
const START_WITHIN_MS = 20_000;

type Machine = KubernetesObject & { spec?: { unschedulable?: boolean } };

/**
 * @param service name of the Service without an address that selects the daemons
 * @param opts.drainMachines also follows which machines are cordoned, which needs a right beyond the namespace
 */
export async function joinKubernetes(service: string, opts: { drainMachines: boolean }): Promise<KubernetesMember> {
  await using stack = new AsyncDisposableStack();
  const api = stack.use(await KubernetesApi.connect());
  const objects = stack.use(api.cache<WarmSnapshot>(api.path(GROUP, RESOURCE)));
  const labels = `kubernetes.io/service-name=${service}`;
  const slices = stack.use(api.cache<EndpointSlice>(api.path(SLICES, "endpointslices"), { labels }));
  const secret = (name: string): Cache<SecretObject> =>
    stack.use(api.cache<SecretObject>(api.path("v1", "secrets"), { fields: `metadata.name=${name}` }));
  const [tokens, projects, templates, logins] = [secret(TOKENS), secret(PROJECTS), secret(TEMPLATES), secret(LOGINS)];
  const machines = opts.drainMachines ? stack.use(api.cache<Machine>(MACHINES)) : null;
  const state = new KubernetesState({
    tokens: new RecordSecret(api, TOKENS, tokens),
    projects: new RecordSecret(api, PROJECTS, projects),
    tags: new TagObjects(api, objects),
    templates: new RecordSecret(api, TEMPLATES, templates),
    logins: new RecordSecret(api, LOGINS, logins),
  });
  // A gateway without state can answer no request, so it does not start.
  const lists = {
    [RESOURCE]: objects,
    endpointslices: slices,
    [TOKENS]: tokens,
    [PROJECTS]: projects,
    [TEMPLATES]: templates,
    [LOGINS]: logins,
    ...(machines ? { nodes: machines } : {}),
  };
  for (const [name, list] of Object.entries(lists))
    if (!(await list.isComplete(START_WITHIN_MS)))
      throw new ForkdError("CLUSTER_STATE_UNAVAILABLE", `Cannot join the cluster: no list of ${name}: ${messageOf(list.failure)}`, {
        hint: "Check that the API server runs, and that deploy/kubernetes/cluster is applied in this namespace.",
      });
  return new KubernetesMember({ api, service, objects, slices, machines, state }, stack.move());
}

type Parts = {
  api: KubernetesApi;
  service: string;
  objects: Cache<WarmSnapshot>;
  slices: Cache<EndpointSlice>;
  /** null: their cordons are not followed */
  machines: Cache<Machine> | null;
  state: ClusterState;
};

export class KubernetesMember implements AsyncDisposable {
  readonly #parts: Parts;
  readonly #stack: AsyncDisposableStack;

  constructor(parts: Parts, stack: AsyncDisposableStack) {
    this.#parts = parts;
    this.#stack = stack;
  }

  get state(): ClusterState {
    return this.#parts.state;
  }

  get api(): KubernetesApi {
    return this.#parts.api;
  }

  get addresses(): NodeAddress[] {
    const { api, service, slices, machines } = this.#parts;
    const cordoned = new Set(machines?.list().flatMap(({ metadata, spec }) => (spec?.unschedulable ? (metadata?.name ?? []) : [])));
    // The certificate of the daemons is for the Service, since their addresses change.
    const servername = `${service}.${api.namespace}.svc`;
    return nodesIn(slices.list()).map((node) => ({ ...node, servername, mustDrain: cordoned.has(node.machine) }));
  }

  /** Follows the daemons, and keeps snapshots where they are wanted while this gateway holds the Lease */
  attend(parts: Pick<KeeperParts, "nodes" | "transfers" | "projects" | "poolFor" | "log">): void {
    const { nodes } = parts;
    const { api, slices, machines, objects } = this.#parts;
    const follow = (): void => nodes.change(this.addresses);
    this.#stack.defer(slices.observe(follow));
    if (machines) this.#stack.defer(machines.observe(follow));
    follow();
    const lease = this.#stack.use(new Lease(api, LEASE, `${hostname()}-${process.pid}-${randomUUID()}`));
    this.#stack.use(new WarmKeeper({ api, objects, lease, ...parts }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}
