// What projects with limits use on each node, as the nodes last said.

import type { QuotaUse } from "@forkd/daemon/api/project";

export type Use = QuotaUse["used"];

/** `asked`: number of the question, which grows */
type Answer = { use: Use; asked: number };

export class Uses {
  readonly #known = new Map<string, Map<object, Answer>>();

  /** A node that does not answer keeps its last use: its sandboxes are still there */
  note(project: string, node: object, answer: Answer): void {
    const ofNodes = this.#known.get(project) ?? new Map<object, Answer>();
    this.#known.set(project, ofNodes);
    // answers may overtake each other: that of an earlier question would hide what was made since
    if ((ofNodes.get(node)?.asked ?? 0) < answer.asked) ofNodes.set(node, answer);
  }

  /** What was on other nodes than these no longer counts: they are not of the cluster any more */
  keep(nodes: readonly object[]): void {
    for (const ofNodes of this.#known.values()) for (const node of ofNodes.keys()) if (!nodes.includes(node)) ofNodes.delete(node);
  }

  forget(project: string): void {
    this.#known.delete(project);
  }

  get projects(): string[] {
    return [...this.#known.keys()];
  }

  /** Of all nodes together */
  total(project: string): Use | null {
    return this.elsewhere(project, null);
  }

  /** Of all nodes but one. null: not known, as of projects without limits */
  elsewhere(project: string, node: object | null): Use | null {
    const ofNodes = this.#known.get(project);
    if (!ofNodes) return null;
    return sumOf([...ofNodes].filter(([other]) => other !== node).map(([, { use }]) => use));
  }
}

export function sumOf(uses: readonly Use[]): Use {
  const sum: Use = {
    sandboxes: 0,
    suspended: 0,
    vcpus: 0,
    memory_mib: 0,
    snapshots: 0,
    storage_bytes: 0,
    forks_per_minute: 0,
    egress_bytes: 0,
    requests_per_second: 0,
  };
  for (const use of uses) for (const kind of Object.keys(sum) as (keyof Use)[]) sum[kind] += use[kind];
  return sum;
}
