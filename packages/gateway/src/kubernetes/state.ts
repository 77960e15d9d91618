// State of the cluster in Kubernetes: projects, tokens, templates and logins in four Secrets, each tag as a WarmSnapshot.

import { KINDS, type ClusterState, type Kind, type Removed, type Stored } from "../state/state.ts";

/** Objects of one kind, read from a cache of Kubernetes' API */
export type Shelf = {
  all(): ReadonlyMap<string, Stored>;
  removed(): readonly Removed[];
  put(name: string, value: Record<string, unknown>, replaces: string | null): Promise<void>;
  remove(name: string, replaces: string): Promise<void>;
  /** Names of objects that have changed */
  observe(changed: (names: readonly string[]) => void): void;
};

export class KubernetesState implements ClusterState {
  readonly #shelves: Record<Kind, Shelf>;
  readonly #listeners = new Set<(kind: Kind, name: string) => void>();

  constructor(shelves: Record<Kind, Shelf>) {
    this.#shelves = shelves;
    for (const kind of KINDS)
      shelves[kind].observe((names) => {
        for (const name of names) for (const listener of this.#listeners) listener(kind, name);
      });
  }

  get(kind: Kind, name: string): Stored | undefined {
    return this.#shelves[kind].all().get(name);
  }

  all(kind: Kind): ReadonlyMap<string, Stored> {
    return this.#shelves[kind].all();
  }

  removed(kind: Kind): readonly Removed[] {
    return this.#shelves[kind].removed();
  }

  async put(kind: Kind, name: string, value: Record<string, unknown>, replaces: string | null): Promise<void> {
    await this.#shelves[kind].put(name, value, replaces);
  }

  async remove(kind: Kind, name: string, replaces: string): Promise<void> {
    await this.#shelves[kind].remove(name, replaces);
  }

  subscribe(listener: (kind: Kind, name: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The caches belong to the caller */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#listeners.clear();
  }
}
