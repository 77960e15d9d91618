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

  /** Removes ephemeral snapshots that nothing needs, and untagged ones that nothing builds on any more */
  async collect(): Promise<{ name: string; bytes: number }[]> {
    const turn = this.#collecting.then(async () => this.#collect());
    this.#collecting = turn.catch(() => undefined); // the caller hears of it
    return turn;
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
    const { runtime, tables, events, db } = this.#core;
    const removed: { name: string; bytes: number }[] = [];
    const unneeded = await this.unneeded();
    for (const { manifest } of unneeded.toSorted((a, b) => b.manifest.depth - a.manifest.depth)) {
      await runtime.removeSnapshot(manifest.id);
      removed.push({ name: manifest.tag, bytes: manifest.memory.bytes + manifest.deviceStateBytes });
      if (!tables.snapshots.get(manifest.id)) continue;
      db.transaction(() => {
        tables.snapshots.delete(manifest.id);
        events.append({ type: "snapshot.deleted", snapshot: manifest.tag, reason: "nothing needs it any more" });
      });
    }
    return removed;
  }

  /** Everything but snapshots that keeps one from being removed */
  #usersOf(id: string): string[] {
    const { tables, runtime } = this.#core;
    const tag = tables.snapshots.get(id)?.tag;
    return [
      ...this.#sandboxesOf(id).map((sandbox) => `sandbox ${sandbox}`),
      ...tables.workspaces
        .all()
        .filter(({ state_tag: state }) => state !== null && state === tag)
        .map(({ name }) => `workspace ${name}`),
      ...(runtime.isHeld(id) || this.#pins.has(id) ? ["a request that is under way"] : []),
    ];
  }

  #sandboxesOf(id: string): string[] {
    return this.#registry.live.filter(({ row }) => row.snapshot_id === id).map(({ row }) => row.id);
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
