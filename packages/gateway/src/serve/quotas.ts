// Quotas of projects over the whole cluster. A node counts its own rows in the transaction that writes them, and adds what
// the gateway says that the project uses on the other nodes. Nothing is written for this.

import { exceeded } from "@forkd/daemon/service/quotas";
import { Rate } from "@forkd/daemon/service/rate";
import { gatewayIn } from "../nodes/signer.ts";
import { sumOf, type Use, type Uses } from "../nodes/uses.ts";
import type { Quota, QuotaUse } from "@forkd/daemon/api/project";
import type { Nodes } from "../nodes/nodes.ts";
import type { ClusterProjects } from "../state/projects.ts";

const SECOND_MS = 1000;
/** Nodes forget what others use after a while without news */
const REPEAT_MS = 30_000;

type More = Partial<Use>;
/** Work of one project: under way, and how much has ended */
type Works = { underWay: Set<{ more: More; done: Promise<unknown> }>; ended: number };

export class ClusterQuotas implements Disposable {
  readonly #nodes: Nodes;
  readonly #projects: ClusterProjects;
  readonly #uses: Uses;
  readonly #requests = new Map<string, Rate>();
  readonly #works = new Map<string, Works>();
  /** questions to the nodes */
  #asked = 0;
  readonly #timer: NodeJS.Timeout;

  constructor(parts: { nodes: Nodes; projects: ClusterProjects; uses: Uses }) {
    this.#nodes = parts.nodes;
    this.#projects = parts.projects;
    this.#uses = parts.uses;
    this.#timer = setInterval(() => void this.#repeat(), REPEAT_MS).unref();
  }

  /** Limits of a project, and what it uses on all nodes together */
  async use(project: string): Promise<QuotaUse> {
    const used = sumOf(await this.#ask(project));
    return {
      project,
      limits: this.#projects.quotaOf(project),
      used: { ...used, requests_per_second: this.#requests.get(project)?.count ?? 0 },
    };
  }

  /** Counts a request to this gateway. Throws QUOTA_EXCEEDED */
  request(project: string): void {
    const limit = this.#projects.quotaOf(project).requests_per_second;
    if (limit === null) return;
    const rate = this.#requests.get(project) ?? new Rate(SECOND_MS, Date.now);
    this.#requests.set(project, rate);
    const used = rate.count;
    if (used + 1 > limit) throw exceeded(project, "requests_per_second", { limit, used, retry_after_secs: 1 });
    rate.add(1);
  }

  /**
   * Runs work that adds to a quota; the node refuses it where it would exceed one. What is under way through this gateway
   * and would exceed a limit together waits for its turn: the nodes do not see each other's rows
   */
  async run<V>(project: string, more: More, work: () => Promise<V>): Promise<V> {
    const limits = this.#projects.quotaOf(project);
    if (!isLimited(limits)) return work();
    const works: Works = this.#works.get(project) ?? { underWay: new Set(), ended: 0 };
    this.#works.set(project, works);
    const { underWay: others } = works;
    for (;;) {
      const { ended } = works;
      await this.refresh(project);
      // work that ended meanwhile is no longer under way, and may be missing in the answers
      if (ended !== works.ended) continue;
      if (others.size === 0 || fits(limits, [this.#uses.total(project) ?? {}, more, ...[...others].map((each) => each.more)])) break;
      await Promise.race([...others].map(({ done }) => done));
    }
    const done = Promise.withResolvers<void>();
    const own = { more, done: done.promise };
    others.add(own);
    try {
      return await work();
    } finally {
      others.delete(own);
      works.ended++;
      done.resolve();
    }
  }

  /** Asks the nodes what the project uses, if it has a limit */
  async refresh(project: string): Promise<void> {
    if (isLimited(this.#projects.quotaOf(project))) await this.#ask(project);
    else this.#uses.forget(project);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  async #ask(project: string): Promise<Use[]> {
    const asked = ++this.#asked;
    this.#uses.keep(this.#nodes.all);
    const { answers } = await this.#nodes.askAll("GET", "/v1/quota", gatewayIn(project));
    const uses = answers.flatMap(({ node, value }) => (value.status === 200 ? [{ node, use: (value.body as QuotaUse).used }] : []));
    if (isLimited(this.#projects.quotaOf(project))) for (const { node, use } of uses) this.#uses.note(project, node, { use, asked });
    return uses.map(({ use }) => use);
  }

  /** The question itself carries what the other nodes use */
  async #repeat(): Promise<void> {
    // no node answers: the reports say so
    for (const project of this.#uses.projects) await this.refresh(project).catch(() => undefined);
  }
}

/** `requests_per_second` is counted by the gateway alone */
function isLimited({ requests_per_second: _requests, ...limits }: Quota): boolean {
  return Object.values(limits).some((limit) => limit !== null);
}

function fits(limits: Quota, parts: readonly More[]): boolean {
  const kinds = Object.keys(limits) as (keyof Quota)[];
  return kinds.every((kind) => {
    const limit = limits[kind];
    return limit === null || parts.reduce((sum, part) => sum + (part[kind] ?? 0), 0) <= limit;
  });
}
