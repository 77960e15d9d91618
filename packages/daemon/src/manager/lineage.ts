// Who needs whom: snapshots build on snapshots, sandboxes run from them. What nothing needs can go.

import { ForkdError } from "../errors.ts";
import type { Snapshot } from "../snapshot/store.ts";
import type { Core } from "./core.ts";
import type { Registry } from "./registry.ts";

export type Removed = { id: string; tag: string };

export class Lineage {
  readonly #core: Core;
  readonly #registry: Registry;
  /** ids of snapshots that a request is about to use */
  readonly #pins = new Map<string, number>();
  #collecting: Promise<unknown> = Promise.resolve();
  /** also those that have not begun to collect */
  readonly #underWay = new Set<Promise<void>>();
  /** one that waits for its turn: it will see all that has happened until now */
  #next: Promise<{ name: string; bytes: number }[]> | undefined;

  constructor(core: Core, registry: Registry) {
    this.#core = core;
    this.#registry = registry;
  }

  /** Keeps a snapshot from being collected while the work goes on */
  async pinned<V>(id: string, work: () => Promise<V>): Promise<V> {
    this.#pins.set(id, (this.#pins.get(id) ?? 0) + 1);
    try {
      return await work();
    } finally {
      const others = (this.#pins.get(id) ?? 1) - 1;
      if (others > 0) this.#pins.set(id, others);
      else this.#pins.delete(id);
    }
  }

  async of(snapshot: Snapshot): Promise<{ ancestors: string[]; dependents: string[]; sandboxes: string[]; parentTag: string | null }> {
    const all = new Map((await this.#core.runtime.snapshots.everything()).map((other) => [other.manifest.id, other]));
    const ancestors = chainOf(snapshot, all).map(({ manifest }) => manifest.tag);
    const dependents = descendantsOf(snapshot.manifest.id, [...all.values()]).map(({ manifest }) => manifest.tag);
    return { ancestors, dependents, sandboxes: this.#sandboxesOf(snapshot.manifest.id), parentTag: ancestors[0] ?? null };
  }

  /**
   * Removes a snapshot. "refuse": not when anything needs it; "cascade": with the snapshots that build on it; "force": takes
   * its name away, and what is still needed of it stays until nothing needs it.
   */
  async remove(tag: string, mode: "refuse" | "cascade" | "force"): Promise<Removed[]> {
    const { snapshots } = this.#core.runtime;
    const id = await snapshots.idOf(tag);
    const descendants = descendantsOf(id, await snapshots.everything());
    if (mode === "force") {
      await snapshots.untag(id);
      await this.#core.runtime.pool.drop(id);
      await this.collect();
      return [{ id, tag }];
    }
    const doomed = mode === "cascade" ? descendants : [];
    const needing = [
      ...descendants.filter((other) => !doomed.includes(other)).map(({ manifest }) => `snapshot ${manifest.tag}`),
      ...[id, ...doomed.map(({ manifest }) => manifest.id)].flatMap((needed) => this.#usersOf(needed)),
    ];
    if (needing.length > 0)
      throw new ForkdError("IN_USE", `Cannot remove snapshot ${tag}: it is needed by ${needing.join(", ")}.`, {
        hint: "End or remove what needs it, or use cascade (also removes what builds on it) or force (only takes the name away).",
        details: { needed_by: needing },
      });
    const removed: Removed[] = [];
    // the youngest first: no step leaves one without its base
    for (const { manifest } of doomed.toSorted((a, b) => b.manifest.depth - a.manifest.depth)) {
      await this.#core.runtime.removeSnapshot(manifest.id);
      removed.push({ id: manifest.id, tag: manifest.tag });
    }
    await this.#core.runtime.removeSnapshot(id);
    return [...removed, { id, tag }];
  }

  /** What runs from it, and the workspace whose state it is, go by its new name */
  renamed(id: string, tag: string): void {
    const { db, tables } = this.#core;
    db.transaction(() => {
      for (const entry of this.#registry.entries) if (entry.row.snapshot_id === id) this.#registry.change(entry, { snapshot_tag: tag });
      for (const row of tables.workspaces.all()) if (row.state_id === id) tables.workspaces.update(row.id, { state_tag: tag });
    });
  }

  /** Removes ephemeral snapshots that nothing needs, and untagged ones that nothing builds on any more */
  async collect(): Promise<{ name: string; bytes: number }[]> {
    if (this.#next) return this.#next;
    this.#next = this.#collecting.then(async () => {
      this.#next = undefined;
      return this.#collect();
    });
    this.#collecting = this.#next.catch(() => undefined); // the caller hears of it
    return this.#next;
  }

  /** The same when a sandbox of this snapshot has ended; most snapshots are there to stay, which is soon found out */
  async collectAfter(id: string): Promise<void> {
    const work = this.#collectAfter(id);
    this.#underWay.add(work);
    try {
      await work;
    } finally {
      this.#underWay.delete(work);
    }
  }

  /** Resolves when nothing is being collected: a removal must not be cut in the middle */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
    await this.#collecting;
  }

  async #collectAfter(id: string): Promise<void> {
    const row = this.#core.tables.snapshots.get(id);
    const stays = row?.ephemeral === 0 && (await this.#core.runtime.snapshots.tagged(row.tag)) === id;
    if (!stays) await this.collect();
  }

  /** What collect() would remove */
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
      // one without a tag may be about to get it, from this process or another
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
    for (const { manifest } of unneeded.toSorted((a, b) => b.manifest.depth - a.manifest.depth)) {
      // somebody may have begun to use it, or given it a name, since it was looked at
      if ((await this.#isKept(manifest.id)) || !(await this.#removeUnused(manifest.id))) continue;
      removed.push({ name: manifest.tag, bytes: manifest.memory.bytes + manifest.deviceStateBytes });
      this.#strikeOut(manifest.id, manifest.tag);
    }
    await this.#removeWrecks();
    return removed;
  }

  async #isKept(id: string): Promise<boolean> {
    return (await this.#hasLastingName(id)) || this.#usersOf(id).length > 0;
  }

  /** One that somebody gave it; an ephemeral snapshot has a tag and is not kept by it */
  async #hasLastingName(id: string): Promise<boolean> {
    if (this.#core.tables.snapshots.get(id)?.ephemeral === 1) return false;
    return [...(await this.#core.runtime.snapshots.tags()).values()].includes(id);
  }

  /** false: something needs it after all */
  async #removeUnused(id: string): Promise<boolean> {
    try {
      await this.#core.runtime.removeSnapshot(id);
      return true;
    } catch (error) {
      if (error instanceof ForkdError && (error.code === "IN_USE" || error.code === "NOT_FOUND")) return false;
      throw error;
    }
  }

  /** Folders that cannot be read and have no name, or one that was never to stay: nobody could ask for them */
  async #removeWrecks(): Promise<void> {
    const { snapshots } = this.#core.runtime;
    for (const id of await snapshots.ids()) {
      if ((await snapshots.isReadable(id)) || (await this.#hasLastingName(id))) continue;
      if (await this.#removeUnused(id)) this.#strikeOut(id, id);
    }
  }

  #strikeOut(id: string, tag: string): void {
    const { tables, events, db } = this.#core;
    if (!tables.snapshots.get(id)) return;
    db.transaction(() => {
      tables.snapshots.delete(id);
      events.append({ type: "snapshot.deleted", snapshot: tag, reason: "nothing needs it any more" });
    });
  }

  /** Everything but snapshots that keeps one from being removed */
  #usersOf(id: string): string[] {
    const { tables, runtime } = this.#core;
    return [
      ...this.#sandboxesOf(id).map((sandbox) => `sandbox ${sandbox}`),
      ...tables.workspaces
        .all()
        .filter(({ state_id: state }) => state === id)
        .map(({ name }) => `workspace ${name}`),
      ...(runtime.isHeld(id) || this.#pins.has(id) ? ["a request that is under way"] : []),
    ];
  }

  #sandboxesOf(id: string): string[] {
    return this.#registry.lasting.filter(({ row }) => row.snapshot_id === id).map(({ row }) => row.id);
  }
}

/** What a snapshot builds on, nearest first */
function chainOf(snapshot: Snapshot, all: ReadonlyMap<string, Snapshot>): Snapshot[] {
  const chain: Snapshot[] = [];
  let current: Snapshot | undefined = snapshot;
  while (current?.manifest.memory.kind === "delta" && chain.length <= all.size) {
    current = all.get(current.manifest.memory.base);
    if (current) chain.push(current);
  }
  return chain;
}

/** What builds on a snapshot, at any distance */
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
