// Reference graph of snapshots: removal with its checks, and garbage collection of unreferenced snapshots.

import { ForkdError } from "@forkd/runtime/errors";
import type { Snapshot } from "@forkd/runtime/snapshot/store";
import { projectOf, shownName } from "../store/project-names.ts";
import type { Core } from "./core.ts";
import type { SandboxRow } from "../store/tables.ts";
import type { Registry } from "./registry.ts";

/** Named in errors without their names */
const OF_OTHERS = "another project";

export type Removed = { id: string; tag: string };

export class Lineage {
  readonly #core: Core;
  readonly #registry: Registry;
  #collecting: Promise<unknown> = Promise.resolve();
  /** includes collections that have not started yet */
  readonly #underWay = new Set<Promise<void>>();
  /** the queued collection: it sees all changes made until it starts, so further requests can share it */
  #next: Promise<{ name: string; bytes: number }[]> | undefined;

  constructor(core: Core, registry: Registry) {
    this.#core = core;
    this.#registry = registry;
  }

  async of(snapshot: Snapshot): Promise<{ ancestors: string[]; dependents: string[]; sandboxes: string[]; parentTag: string | null }> {
    const all = new Map((await this.#core.runtime.snapshots.everything()).map((other) => [other.manifest.id, other]));
    const project = projectOf(snapshot.manifest.tag);
    // what other projects built on, or build on it, is not for this one
    const own = (others: readonly Snapshot[]): string[] =>
      others.filter((other) => this.#ownerOf(other) === project).map(({ manifest }) => shownName(manifest.tag, project));
    const chain = chainOf(snapshot, all);
    const dependents = own(descendantsOf(snapshot.manifest.id, [...all.values()]));
    const sandboxes = this.#usersIn(snapshot.manifest.id, project);
    return { ancestors: own(chain), dependents, sandboxes, parentTag: own(chain.slice(0, 1))[0] ?? null };
  }

  /**
   * Removes a snapshot. "refuse": fails if anything needs it. "cascade": also removes the snapshots that build on it.
   * "force": removes the tag; the data is collected when nothing needs it.
   */
  async remove(tag: string, mode: "refuse" | "cascade" | "force"): Promise<Removed[]> {
    const project = projectOf(tag);
    const { snapshots } = this.#core.runtime;
    const id = await snapshots.idOf(tag);
    const descendants = descendantsOf(id, await snapshots.everything());
    if (mode === "force") {
      await snapshots.untag(id);
      await this.#core.runtime.pool.drop(id);
      await this.collect();
      return [{ id, tag }];
    }
    const isOwn = (other: Snapshot): boolean => this.#ownerOf(other) === project;
    // never those of other projects, which may build on a public snapshot
    const doomed = mode === "cascade" ? descendants.filter(isOwn) : [];
    const nameOf = (other: Snapshot): string => (isOwn(other) ? `snapshot ${shownName(other.manifest.tag, project)}` : OF_OTHERS);
    const needing = [
      ...descendants.filter((other) => !doomed.includes(other)).map(nameOf),
      ...[id, ...doomed.map(({ manifest }) => manifest.id)].flatMap((needed) => this.#usersOf(needed, project)),
    ].filter((user, at, all) => all.indexOf(user) === at);
    if (needing.length > 0)
      throw new ForkdError("IN_USE", `Cannot remove snapshot ${shownName(tag, project)}: it is needed by ${needing.join(", ")}.`, {
        hint: "End or remove what needs it, or use `cascade=true` (also removes what builds on it) or `force=true` (only takes the name away).",
        details: { needed_by: needing },
      });
    const removed: Removed[] = [];
    // deepest first: a snapshot must never lose its base
    for (const { manifest } of doomed.toSorted((a, b) => b.manifest.depth - a.manifest.depth)) {
      await this.#core.runtime.removeSnapshot(manifest.id);
      removed.push({ id: manifest.id, tag: manifest.tag });
    }
    await this.#core.runtime.removeSnapshot(id);
    return [...removed, { id, tag }];
  }

  /** Updates the tag in the rows of its sandboxes and workspaces */
  renamed(id: string, tag: string): void {
    const { db, tables } = this.#core;
    db.transaction(() => {
      for (const entry of this.#registry.entries) if (entry.row.snapshot_id === id) this.#registry.change(entry, { snapshot_tag: tag });
      for (const row of tables.workspaces.all()) if (row.state_id === id) tables.workspaces.update(row.id, { state_tag: tag });
    });
  }

  /** Removes ephemeral snapshots that nothing needs, and untagged ones that nothing builds on */
  async collect(): Promise<{ name: string; bytes: number }[]> {
    if (this.#next) return this.#next;
    this.#next = this.#collecting.then(async () => {
      this.#next = undefined;
      return this.#collect();
    });
    this.#collecting = this.#next.catch(() => undefined); // the caller gets the error from #next
    return this.#next;
  }

  /** Collects after a sandbox of this snapshot has ended. Skips the scan for a lasting snapshot, the common case */
  async collectAfter(id: string): Promise<void> {
    const work = this.#collectAfter(id);
    this.#underWay.add(work);
    try {
      await work;
    } finally {
      this.#underWay.delete(work);
    }
  }

  /** Resolves when no collection is in progress: a stop must not interrupt a removal */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
    await this.#collecting;
  }

  async #collectAfter(id: string): Promise<void> {
    const row = this.#core.tables.snapshots.get(id);
    const stays = row?.ephemeral === 0 && (await this.#core.runtime.snapshots.tagged(row.tag)) === id;
    if (!stays) await this.collect();
  }

  /** Snapshots that collect() would remove */
  async unneeded(): Promise<Snapshot[]> {
    const { snapshots } = this.#core.runtime;
    const all = await snapshots.everything();
    const byId = new Map(all.map((snapshot) => [snapshot.manifest.id, snapshot]));
    const tagged = new Set((await snapshots.tags()).values());
    const ephemeral = new Set(this.#core.tables.snapshots.where("ephemeral", 1).map(({ id }) => id));
    const needed = new Set<string>();
    for (const snapshot of all) {
      const { id } = snapshot.manifest;
      const named = tagged.has(id) && !ephemeral.has(id);
      // an untagged snapshot may be about to get its tag, from this process or another
      const isNew = !tagged.has(id) && (await snapshots.isReserved(snapshot.manifest.tag));
      if (!named && !isNew && this.#usersOf(id).length === 0) continue;
      needed.add(id);
      for (const base of chainOf(snapshot, byId)) needed.add(base.manifest.id);
    }
    return all.filter(({ manifest }) => !needed.has(manifest.id));
  }

  async #collect(): Promise<{ name: string; bytes: number }[]> {
    const removed: { name: string; bytes: number }[] = [];
    const unneeded = await this.unneeded();
    // sync first: a power failure must not restore a row that refers to a removed snapshot
    if (unneeded.length > 0) await this.#core.db.sync();
    for (const { manifest } of unneeded.toSorted((a, b) => b.manifest.depth - a.manifest.depth)) {
      // check again: a concurrent request may have used or tagged it
      if ((await this.#isKept(manifest.id)) || !(await this.#removeUnused(manifest.id))) continue;
      removed.push({ name: manifest.tag, bytes: manifest.memory.bytes + manifest.deviceStateBytes });
      this.#forget(manifest.id);
    }
    await this.#removeWrecks();
    return removed;
  }

  async #isKept(id: string): Promise<boolean> {
    return (await this.#hasLastingName(id)) || this.#usersOf(id).length > 0;
  }

  /** Whether a tag keeps it; the tag of an ephemeral snapshot does not */
  async #hasLastingName(id: string): Promise<boolean> {
    if (this.#core.tables.snapshots.get(id)?.ephemeral === 1) return false;
    return [...(await this.#core.runtime.snapshots.tags()).values()].includes(id);
  }

  /** false: in use again, or already removed */
  async #removeUnused(id: string): Promise<boolean> {
    try {
      await this.#core.runtime.removeSnapshot(id);
      return true;
    } catch (error) {
      if (error instanceof ForkdError && (error.code === "IN_USE" || error.code === "NOT_FOUND")) return false;
      throw error;
    }
  }

  /** Removes unreadable snapshot folders without a lasting tag: no request can address them */
  async #removeWrecks(): Promise<void> {
    const { snapshots } = this.#core.runtime;
    for (const id of await snapshots.ids()) {
      if ((await snapshots.isReadable(id)) || (await this.#hasLastingName(id))) continue;
      if (await this.#removeUnused(id)) this.#forget(id);
    }
  }

  #forget(id: string): void {
    const { tables, events, db } = this.#core;
    const row = tables.snapshots.get(id);
    if (!row) return;
    db.eventually(() => {
      tables.snapshots.delete(id);
      events.append({ type: "snapshot.deleted", project: row.project, snapshot: row.tag, reason: "nothing needs it any more" });
    });
  }

  #ownerOf({ manifest }: Snapshot): string {
    return this.#core.tables.snapshots.get(manifest.id)?.project ?? projectOf(manifest.tag);
  }

  /** References to a snapshot, except those of other snapshots. Those of other projects are not named */
  #usersOf(id: string, project?: string): string[] {
    const { tables, runtime } = this.#core;
    const shown = (owner: string, what: string): string => (project === undefined || owner === project ? what : OF_OTHERS);
    return [
      ...this.#sandboxesOf(id).map((row) => shown(row.project, `sandbox ${row.id}`)),
      ...tables.workspaces
        .all()
        .filter(({ state_id: state }) => state === id)
        .map((row) => shown(row.project, `workspace ${row.name}`)),
      ...(runtime.locks.isHeld(id) ? ["a request that is under way"] : []),
    ];
  }

  /** Ids of a project's sandboxes that use the snapshot */
  #usersIn(id: string, project: string): string[] {
    return this.#sandboxesOf(id)
      .filter((row) => row.project === project)
      .map((row) => row.id);
  }

  #sandboxesOf(id: string): SandboxRow[] {
    return this.#registry.lasting.map(({ row }) => row).filter((row) => row.snapshot_id === id);
  }
}

/** Bases of a snapshot, nearest first */
function chainOf(snapshot: Snapshot, all: ReadonlyMap<string, Snapshot>): Snapshot[] {
  const chain: Snapshot[] = [];
  let current: Snapshot | undefined = snapshot;
  while (current?.manifest.memory.kind === "delta" && chain.length <= all.size) {
    current = all.get(current.manifest.memory.base);
    if (current) chain.push(current);
  }
  return chain;
}

/** All snapshots that build on it, directly or indirectly */
function descendantsOf(id: string, all: readonly Snapshot[]): Snapshot[] {
  const found: Snapshot[] = [];
  const ids = new Set([id]);
  for (let grown = true; grown;) {
    grown = false;
    for (const snapshot of all) {
      const { memory, id: own } = snapshot.manifest;
      if (memory.kind !== "delta" || !ids.has(memory.base) || ids.has(own)) continue;
      ids.add(own);
      found.push(snapshot);
      grown = true;
    }
  }
  return found;
}
