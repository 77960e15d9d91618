// Changes of objects in the order in which this gateway saw them: what watches send, and where resource versions come from.
//
// A resource version is a number that grows with time and says which gateway made it. A watch from a version of this
// gateway gets exactly what came later. One from a version of another gateway gets, once, everything that changed since
// a little before that time: a client may see the same state twice, but misses none.

import { randomInt } from "node:crypto";
import { refusal } from "./refusal.ts";
import type { KubernetesObject } from "./objects.ts";
import type { Resource } from "./resources.ts";

const TIME_BITS = 20n;
const GATEWAY_BITS = 10n;
const STEP = 1n << GATEWAY_BITS;
/** Difference of clocks between gateways, and how late a gateway may learn of a change */
const SKEW_MS = 10_000n;
const MAX_CHANGES = 20_000;
const MAX_GONE = 10_000;

/** `previous`: the state before a modification, where it is known */
export type Change = {
  type: "ADDED" | "MODIFIED" | "DELETED";
  resource: Resource;
  object: KubernetesObject;
  version: bigint;
  previous?: KubernetesObject | undefined;
};

type Entry = { object: KubernetesObject; text: string; version: bigint };
type Listener = (change: Change) => void;

export class Journal {
  readonly #gateway = BigInt(randomInt(Number(STEP)));
  readonly #startedMs: bigint;
  readonly #entries = new Map<Resource, Map<string, Entry>>();
  readonly #listeners = new Set<Listener>();
  readonly #nowMs: () => number;
  /** when objects went, so that a state that was read before does not bring them back */
  readonly #gone = new Map<string, bigint>();
  #changes: Change[] = [];
  /** changes up to here are forgotten */
  #forgotten = 0n;
  #last = 0n;

  constructor(opts: { nowMs?: () => number } = {}) {
    this.#nowMs = opts.nowMs ?? Date.now;
    this.#startedMs = BigInt(this.#nowMs());
  }

  /** A version that is higher than all before */
  tick(): bigint {
    const now = (BigInt(this.#nowMs()) << TIME_BITS) | this.#gateway;
    this.#last = now > this.#last ? now : this.#last + STEP;
    return this.#last;
  }

  /**
   * Notes the state of an object; null: it is gone.
   * @param asOf version before the state was read: a state that was noted later than that stays
   */
  note(resource: Resource, key: { namespace: string; name: string }, object: KubernetesObject | null, asOf?: bigint): void {
    const entries = this.#of(resource);
    const id = `${key.namespace}/${key.name}`;
    const known = entries.get(id);
    const gone = `${resource} ${id}`;
    if (asOf !== undefined && (known?.version ?? this.#gone.get(gone) ?? 0n) > asOf) return;
    if (!object) {
      if (!known) return;
      entries.delete(id);
      const version = this.tick();
      this.#gone.delete(gone);
      this.#gone.set(gone, version);
      for (const oldest of this.#gone.keys()) {
        if (this.#gone.size <= MAX_GONE) break;
        this.#gone.delete(oldest);
      }
      this.#add({ type: "DELETED", resource, object: known.object, version });
      return;
    }
    const text = JSON.stringify(object);
    if (known?.text === text) return;
    const { uid } = object.metadata;
    if (known && known.object.metadata.uid !== uid) {
      // another object of the same name
      this.#add({ type: "DELETED", resource, object: known.object, version: this.tick() });
      entries.delete(id);
    }
    const version = this.tick();
    const previous = entries.get(id)?.object;
    entries.set(id, { object, text, version });
    this.#add({ type: previous ? "MODIFIED" : "ADDED", resource, object, version, previous });
  }

  all(resource: Resource): KubernetesObject[] {
    return [...this.#of(resource).values()].map(versioned);
  }

  /** The object as it is sent, with the version at which it was noted */
  versioned(resource: Resource, object: KubernetesObject): KubernetesObject {
    const { namespace, name } = object.metadata;
    const known = this.#of(resource).get(`${namespace}/${name}`);
    return versioned({ object, version: known?.version ?? this.tick() });
  }

  /** Changes after a version of any gateway. Throws Expired if they are not known any more */
  since(text: string): Change[] {
    if (!/^\d{1,19}$/.test(text))
      throw refusal("BadRequest", `The resource version ${JSON.stringify(text.slice(0, 40))} is not one of this API.`);
    const version = BigInt(text);
    if ((version & (STEP - 1n)) === this.#gateway && version >> TIME_BITS >= this.#startedMs) {
      if (version < this.#forgotten) throw expired(text);
      return this.#changes.filter((change) => change.version > version);
    }
    const fromMs = (version >> TIME_BITS) - SKEW_MS;
    const from = fromMs << TIME_BITS;
    if (fromMs < this.#startedMs || from < this.#forgotten) throw expired(text);
    const current = [...this.#entries].flatMap(([resource, entries]) =>
      [...entries.values()].flatMap((entry): Change[] => (entry.version > from ? [{ type: "MODIFIED", resource, ...entry }] : [])),
    );
    const gone = this.#changes.filter(({ type, resource, object: { metadata }, version: at }) => {
      return type === "DELETED" && at > from && !this.#of(resource).has(`${metadata.namespace}/${metadata.name}`);
    });
    return [...current, ...gone].toSorted((a, b) => (a.version < b.version ? -1 : 1));
  }

  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #of(resource: Resource): Map<string, Entry> {
    const known = this.#entries.get(resource) ?? new Map<string, Entry>();
    this.#entries.set(resource, known);
    return known;
  }

  #add(change: Change): void {
    this.#changes.push(change);
    if (this.#changes.length > MAX_CHANGES) {
      const kept = this.#changes.slice(MAX_CHANGES / 2);
      this.#forgotten = this.#changes[MAX_CHANGES / 2 - 1]?.version ?? 0n;
      this.#changes = kept;
    }
    for (const listener of this.#listeners) listener(change);
  }
}

export function versioned({ object, version }: { object: KubernetesObject; version: bigint }): KubernetesObject {
  return { ...object, metadata: { ...object.metadata, resourceVersion: String(version) } };
}

function expired(version: string): Error {
  return refusal("Expired", `The resource version ${version} is too old: list again.`);
}
