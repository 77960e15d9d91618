// Projects of the cluster, with their quotas. `default` always exists; its object is made when it gets a quota.

import { ForkdError } from "@forkd/runtime/errors";
import { notFound } from "@forkd/runtime/util/not-found";
import { DEFAULT_PROJECT } from "@forkd/daemon/store/project-names";
import { NO_QUOTA, withLimits } from "@forkd/daemon/store/projects";
import { Conflict, type ClusterState } from "./state.ts";
import type { CreateProject, ProjectInfo, Quota, UpdateProject } from "@forkd/daemon/api/project";

const KIND = "projects";
/** As on a daemon */
const MAX_PROJECTS = 1000;
const ATTEMPTS = 4;

export class ClusterProjects {
  readonly #state: ClusterState;
  /** parsed once per version: every request looks one up */
  readonly #parsed = new WeakMap<object, ProjectInfo>();

  constructor(state: ClusterState) {
    this.#state = state;
  }

  list(): ProjectInfo[] {
    const all = [this.get(DEFAULT_PROJECT), ...this.stored.filter(({ name }) => name !== DEFAULT_PROJECT)];
    return all.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Throws NOT_FOUND */
  get(name: string): ProjectInfo {
    const stored = this.#state.get(KIND, name);
    if (stored) return this.#parse(name, stored.value);
    if (name === DEFAULT_PROJECT) return { name, quota: NO_QUOTA, created_at_unix: 0 };
    throw notFound("project", name, [DEFAULT_PROJECT, ...this.#state.all(KIND).keys()]);
  }

  /** Those with an object of their own: all but a `default` without quota */
  get stored(): ProjectInfo[] {
    return [...this.#state.all(KIND)].map(([name, { value }]) => this.#parse(name, value));
  }

  /** Names of projects that were removed within the last day: nodes may still have them */
  get removed(): string[] {
    return this.#state.removed(KIND).map(({ name }) => name);
  }

  /** Limits of a project; one that does not exist has none */
  quotaOf(name: string): Quota {
    const stored = this.#state.get(KIND, name);
    return stored ? this.#parse(name, stored.value).quota : NO_QUOTA;
  }

  async create({ name, ...quota }: CreateProject): Promise<ProjectInfo> {
    const taken = (): ForkdError => new ForkdError("EXISTS", `Cannot make project ${name}: there is one already.`);
    if (name === DEFAULT_PROJECT || this.#state.get(KIND, name)) throw taken();
    if (this.#state.all(KIND).size >= MAX_PROJECTS)
      throw new ForkdError("LIMIT_REACHED", `Cannot make project ${name}: there are ${MAX_PROJECTS} already.`, {
        hint: "Remove projects that are not needed.",
      });
    const made = { quota: withLimits(NO_QUOTA, quota), created_at_unix: Math.floor(Date.now() / 1000) };
    try {
      await this.#state.put(KIND, name, made, null);
    } catch (error) {
      throw error instanceof Conflict ? taken() : error;
    }
    return { name, ...made };
  }

  /** Changes the given limits and keeps the others */
  async update(name: string, given: UpdateProject): Promise<ProjectInfo> {
    for (let attempt = 1; ; attempt++) {
      const { quota, created_at_unix } = this.get(name);
      const changed = { quota: withLimits(quota, given), created_at_unix };
      try {
        await this.#state.put(KIND, name, changed, this.#state.get(KIND, name)?.version ?? null);
        return { name, ...changed };
      } catch (error) {
        if (!(error instanceof Conflict)) throw error;
        if (attempt === ATTEMPTS) throw busy(name);
      }
    }
  }

  /** Throws for a project that does not exist or must stay */
  checkRemovable(name: string): void {
    this.get(name);
    if (name === DEFAULT_PROJECT)
      throw new ForkdError("BAD_REQUEST", `Cannot remove project ${name}: the operator's token of the cluster works in it.`, {
        hint: "Every other project can be removed.",
      });
  }

  /** The caller has checked that the project owns nothing */
  async remove(name: string): Promise<void> {
    const stored = this.#state.get(KIND, name);
    if (!stored) return;
    try {
      await this.#state.remove(KIND, name, stored.version);
    } catch (error) {
      throw error instanceof Conflict ? busy(name) : error;
    }
  }

  #parse(name: string, value: Record<string, unknown>): ProjectInfo {
    let known = this.#parsed.get(value);
    if (!known) {
      const quota = { ...NO_QUOTA, ...(value["quota"] as Partial<Quota>) };
      known = { name, quota, created_at_unix: Number(value["created_at_unix"]) };
      this.#parsed.set(value, known);
    }
    return known;
  }
}

function busy(name: string): ForkdError {
  return new ForkdError("BUSY", `Cannot change project ${name}: another gateway changes it.`);
}
