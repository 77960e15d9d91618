// Quotas of projects. Rows are counted in the transaction that writes them, so two requests cannot share the last place.

import { ForkdError } from "@forkd/runtime/errors";
import type { Quota, QuotaUse } from "../api/project.ts";
import type { Db, Row } from "../store/db.ts";
import type { Projects } from "../store/projects.ts";
import { Rate } from "./rate.ts";

type Kind = keyof Quota;
type Use = QuotaUse["used"];

/** Bytes that are written to the database before they are sent: after a crash a project still cannot exceed its limit */
const EGRESS_STEP = 1024 * 1024;
const MINUTE_MS = 60_000;
const SECOND_MS = 1000;
/** Gateways repeat what the other nodes of a cluster use; after so long none is left that does */
const ELSEWHERE_MS = 120_000;

const NAMES: Record<Kind, string> = {
  sandboxes: "running sandboxes",
  suspended: "suspended sandboxes",
  vcpus: "CPUs of running sandboxes",
  memory_mib: "MiB of memory of running sandboxes",
  snapshots: "snapshots",
  storage_bytes: "bytes of snapshots and disks",
  forks_per_minute: "forks in a minute",
  egress_bytes: "bytes out of sandboxes this month",
  requests_per_second: "requests in a second",
};

/** `used` includes what is not written yet, `stored` what is */
type Egress = { period: string; used: number; stored: number };

export class Quotas {
  readonly #db: Db;
  readonly #projects: Projects;
  readonly #nowMs: () => number;
  readonly #forks = new Map<string, Rate>();
  readonly #requests = new Map<string, Rate>();
  readonly #egress = new Map<string, Egress>();
  /** what projects use on the other nodes of a cluster, as gateways last said */
  readonly #elsewhere = new Map<string, { use: Use; atMs: number }>();
  /** what the disks of running sandboxes take, measured from time to time */
  #disks = new Map<string, number>();

  constructor(db: Db, projects: Projects, opts: { nowMs?: () => number } = {}) {
    this.#db = db;
    this.#projects = projects;
    this.#nowMs = opts.nowMs ?? Date.now;
  }

  use(project: string): QuotaUse {
    return { project, limits: this.#projects.quotaOf(project), used: this.#used(project) };
  }

  /** Of every project */
  uses(): QuotaUse[] {
    return this.#projects.list().map(({ name }) => this.use(name));
  }

  /** Throws QUOTA_EXCEEDED. Call it inside the transaction, after the rows were written: the transaction is then undone */
  check(project: string, kinds: readonly Kind[]): void {
    this.#refuse(project, kinds, {});
  }

  /** The same before work begins, with what it will add */
  foresee(project: string, more: Partial<Use>): void {
    this.#refuse(project, Object.keys(more) as Kind[], more);
  }

  /** Counts forks, or throws */
  fork(project: string, n: number): void {
    this.#count(this.#forks, MINUTE_MS, project, "forks_per_minute", n);
  }

  /** Counts a request, or throws */
  request(project: string): void {
    if (this.#projects.quotaOf(project).requests_per_second !== null)
      this.#count(this.#requests, SECOND_MS, project, "requests_per_second", 1);
  }

  /** Counts bytes that leave a sandbox; false: the project has none left */
  send(project: string, bytes: number): boolean {
    const limit = this.#projects.quotaOf(project).egress_bytes;
    const egress = this.#egressOf(project);
    if (limit !== null && egress.used + this.#elsewhereOf(project, "egress_bytes") + bytes > limit) return false;
    egress.used += bytes;
    if (egress.used > egress.stored) this.#storeEgress(project, egress, egress.used + EGRESS_STEP);
    return true;
  }

  /** Limits of a project are for the whole cluster: the use of the other nodes counts here too */
  noteElsewhere(project: string, use: Use): void {
    this.#elsewhere.set(project, { use, atMs: this.#nowMs() });
  }

  measured(disks: Map<string, number>): void {
    this.#disks = disks;
  }

  /** Throws IN_USE with what the project owns */
  refuseOwner(project: string, others: Record<string, readonly string[]>): void {
    const namesIn = (sql: string): string[] => this.#db.all(sql, project).map((row) => String(row["name"]));
    const owned = {
      sandboxes: namesIn("SELECT id AS name FROM sandboxes WHERE project = ? AND state IN ('running', 'paused', 'suspended')"),
      workspaces: namesIn("SELECT name FROM workspaces WHERE project = ?"),
      ...others,
    };
    const found = Object.entries(owned).filter(([, names]) => names.length > 0);
    if (found.length === 0) return;
    const shown = found.map(([kind, names]) => `${names.length} ${kind} (${names.slice(0, 3).join(", ")}${names.length > 3 ? ", …" : ""})`);
    throw new ForkdError("IN_USE", `Cannot remove project ${project}: it owns ${shown.join(", ")}.`, {
      hint: "Remove these first.",
      details: { owned: Object.fromEntries(found) },
    });
  }

  /** Forgets the rows of a removed project that has nothing else */
  forget(project: string): void {
    this.#db.transaction(() => {
      this.#db.run("DELETE FROM sandboxes WHERE project = ?", project);
      this.#db.run("DELETE FROM idempotency WHERE project = ?", project);
      this.#db.run("DELETE FROM events WHERE project = ?", project);
    });
    for (const kept of [this.#forks, this.#requests, this.#egress, this.#elsewhere]) kept.delete(project);
  }

  #refuse(project: string, kinds: readonly Kind[], more: Partial<Use>): void {
    const limits = this.#projects.quotaOf(project);
    if (kinds.every((kind) => limits[kind] === null)) return;
    const used = this.#used(project);
    for (const kind of kinds) {
      const limit = limits[kind];
      const now = used[kind] + this.#elsewhereOf(project, kind);
      if (limit !== null && now + (more[kind] ?? 0) > limit) throw exceeded(project, kind, { limit, used: now });
    }
  }

  #count(rates: Map<string, Rate>, windowMs: number, project: string, kind: Kind, n: number): void {
    const rate = rates.get(project) ?? new Rate(windowMs, this.#nowMs);
    rates.set(project, rate);
    const limit = this.#projects.quotaOf(project)[kind];
    const used = rate.count + this.#elsewhereOf(project, kind);
    if (limit !== null && used + n > limit)
      throw exceeded(project, kind, { limit, used, retry_after_secs: Math.max(1, Math.ceil(rate.waitMs / 1000)) });
    rate.add(n);
  }

  #elsewhereOf(project: string, kind: Kind): number {
    const known = this.#elsewhere.get(project);
    return known && this.#nowMs() - known.atMs < ELSEWHERE_MS ? known.use[kind] : 0;
  }

  #used(project: string): Use {
    const count = (sql: string): Row => this.#db.get(sql, project) ?? {};
    const live = count(
      "SELECT count(*) AS n, coalesce(sum(vcpus), 0) AS vcpus, coalesce(sum(memory_mib), 0) AS mib FROM sandboxes WHERE project = ? AND state IN ('running', 'paused')",
    );
    const asleep = count("SELECT count(*) AS n FROM sandboxes WHERE project = ? AND state = 'suspended'");
    const kept = count("SELECT count(*) AS n FROM snapshots WHERE project = ? AND ephemeral = 0");
    const stored = count("SELECT coalesce(sum(bytes), 0) AS bytes FROM snapshots WHERE project = ?");
    return {
      sandboxes: Number(live["n"]),
      suspended: Number(asleep["n"]),
      vcpus: Number(live["vcpus"]),
      memory_mib: Number(live["mib"]),
      snapshots: Number(kept["n"]),
      storage_bytes: Number(stored["bytes"]) + (this.#disks.get(project) ?? 0),
      forks_per_minute: this.#forks.get(project)?.count ?? 0,
      egress_bytes: this.#egressOf(project).used,
      requests_per_second: this.#requests.get(project)?.count ?? 0,
    };
  }

  /** Begins anew with each month */
  #egressOf(project: string): Egress {
    const period = new Date(this.#nowMs()).toISOString().slice(0, 7);
    const known = this.#egress.get(project);
    if (known?.period === period) return known;
    const row = this.#db.get("SELECT egress_bytes, egress_period FROM projects WHERE name = ?", project);
    const stored = row?.["egress_period"] === period ? Number(row["egress_bytes"]) : 0;
    const egress = { period, used: stored, stored };
    this.#egress.set(project, egress);
    return egress;
  }

  #storeEgress(project: string, egress: Egress, bytes: number): void {
    egress.stored = bytes;
    const { period } = egress;
    this.#db.eventually(() => {
      this.#db.run("UPDATE projects SET egress_bytes = ?, egress_period = ? WHERE name = ?", bytes, period, project);
    });
  }
}

export function exceeded(project: string, kind: Kind, facts: { limit: number; used: number; retry_after_secs?: number }): ForkdError {
  const message = `Cannot do this: project ${project} may have ${facts.limit} ${NAMES[kind]}, and ${facts.used} are in use.`;
  return new ForkdError("QUOTA_EXCEEDED", message, { details: { project, quota: kind, ...facts } });
}
