// Projects: owners of tokens, sandboxes, snapshots, images and workspaces, each with its quota.

import { ForkdError } from "@forkd/runtime/errors";
import { notFound } from "@forkd/runtime/util/not-found";
import type { CreateProject, ProjectInfo, Quota, UpdateProject } from "../api/project.ts";
import type { Db } from "./db.ts";
import { DEFAULT_PROJECT } from "./project-names.ts";

/** Each has its own queues, counters and metrics */
const MAX_PROJECTS = 1000;

export const NO_QUOTA: Quota = {
  sandboxes: null,
  suspended: null,
  vcpus: null,
  memory_mib: null,
  snapshots: null,
  storage_bytes: null,
  forks_per_minute: null,
  egress_bytes: null,
  requests_per_second: null,
};

export class Projects {
  readonly #db: Db;
  readonly #now: () => number;
  /** all of them by name: each request looks one up */
  readonly #known = new Map<string, ProjectInfo>();

  constructor(db: Db, opts: { nowMs?: () => number } = {}) {
    this.#db = db;
    const nowMs = opts.nowMs ?? Date.now;
    this.#now = () => Math.floor(nowMs() / 1000);
    for (const row of db.all("SELECT name, quota, created_at FROM projects ORDER BY name")) {
      const quota = { ...NO_QUOTA, ...(JSON.parse(String(row["quota"])) as Partial<Quota>) };
      this.#known.set(String(row["name"]), { name: String(row["name"]), quota, created_at_unix: Number(row["created_at"]) });
    }
  }

  list(): ProjectInfo[] {
    return [...this.#known.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  has(name: string): boolean {
    return this.#known.has(name);
  }

  get(name: string): ProjectInfo {
    const known = this.#known.get(name);
    if (!known) throw notFound("project", name, this.#known.keys());
    return known;
  }

  /** Limits of a project; one that does not exist has none */
  quotaOf(name: string): Quota {
    return this.#known.get(name)?.quota ?? NO_QUOTA;
  }

  create({ name, ...quota }: CreateProject): ProjectInfo {
    if (this.#known.has(name)) throw new ForkdError("EXISTS", `Cannot make project ${name}: there is one already.`);
    if (this.#known.size >= MAX_PROJECTS)
      throw new ForkdError("LIMIT_REACHED", `Cannot make project ${name}: there are ${MAX_PROJECTS} already.`, {
        hint: "Remove projects that are not needed.",
      });
    const made = { name, quota: withLimits(NO_QUOTA, quota), created_at_unix: this.#now() };
    this.#db.durably(() =>
      this.#db.run(
        "INSERT INTO projects (name, quota, created_at) VALUES (?, ?, ?)",
        name,
        JSON.stringify(made.quota),
        made.created_at_unix,
      ),
    );
    this.#known.set(name, made);
    return made;
  }

  /** Changes the given limits and keeps the others */
  update(name: string, quota: UpdateProject): ProjectInfo {
    const known = this.get(name);
    const changed = { ...known, quota: withLimits(known.quota, quota) };
    this.#db.durably(() => this.#db.run("UPDATE projects SET quota = ? WHERE name = ?", JSON.stringify(changed.quota), name));
    this.#known.set(name, changed);
    return changed;
  }

  /** Throws for a project that does not exist or must stay */
  checkRemovable(name: string): void {
    this.get(name);
    if (name === DEFAULT_PROJECT)
      throw new ForkdError("BAD_REQUEST", `Cannot remove project ${name}: the daemon's own user works in it.`, {
        hint: "Every other project can be removed.",
      });
  }

  /** The caller has checked that the project owns nothing */
  remove(name: string): void {
    this.checkRemovable(name);
    this.#db.durably(() => this.#db.run("DELETE FROM projects WHERE name = ?", name));
    this.#known.delete(name);
  }
}

export function withLimits(before: Quota, given: UpdateProject): Quota {
  const set = Object.entries(given).filter(([, limit]) => limit !== undefined);
  return { ...before, ...(Object.fromEntries(set) as Partial<Quota>) };
}
