// Tags of the cluster as WarmSnapshots, which people may also make with kubectl.

import { ForkdError } from "@forkd/runtime/errors";
import { Conflict, type Removed, type Stored } from "../state/state.ts";
import { byTag, GROUP, keyOf, madeBy, makerOf, objectName, RESOURCE, type WarmSnapshot, type WarmSpec } from "./warm-snapshot.ts";

import type { KubernetesApi } from "./api.ts";
import type { Cache } from "./cache.ts";
import type { Shelf } from "./state.ts";

/** A change of the status between read and write is a conflict for Kubernetes */
const TRIES = 10;
const KEEP_REMOVED_MS = 24 * 3600 * 1000;

export class TagObjects implements Shelf {
  readonly #api: KubernetesApi;
  readonly #cache: Cache<WarmSnapshot>;
  readonly #path: string;
  #live = new Map<string, Stored>();
  /** those that this gateway noticed */
  readonly #removed = new Map<string, number>();
  #observer: ((names: readonly string[]) => void) | null = null;

  constructor(api: KubernetesApi, cache: Cache<WarmSnapshot>) {
    this.#api = api;
    this.#cache = cache;
    this.#path = api.path(GROUP, RESOURCE);
    cache.observe(() => this.#read());
  }

  all(): ReadonlyMap<string, Stored> {
    return this.#live;
  }

  removed(): readonly Removed[] {
    return [...this.#removed].map(([name, removedAtMs]) => ({ name, removedAtMs }));
  }

  async put(key: string, value: Record<string, unknown>, replaces: string | null): Promise<void> {
    const known = byTag(this.#cache.list()).get(key);
    if (known) {
      if (makerOf(known) === null) throw new Conflict(`${known.metadata.name} says where the snapshot of the tag comes from`);
      await this.#change(known, replaces, "PUT", (object) => ({ ...object, spec: { ...object.spec, ...specOf(value) } }));
      return;
    }
    if (replaces !== null) throw new Conflict(`there is no tag ${key}`);
    const [project = "", tag = ""] = key.split("~");
    const body = {
      apiVersion: GROUP,
      kind: "WarmSnapshot",
      metadata: { name: objectName(project, tag) },
      spec: { project, tag, ...specOf(value) },
    };
    const made = await this.#api.request<WarmSnapshot>("POST", this.#path, body);
    if (made.status === "conflict") {
      await this.#changed(key, null);
      throw new Conflict(`another gateway made the tag ${key}`);
    }
    if (made.status === "missing") throw this.#lacking();
    await this.#seen(made.body);
  }

  async remove(key: string, replaces: string): Promise<void> {
    const known = byTag(this.#cache.list()).get(key);
    if (!known) throw new Conflict(`there is no tag ${key}`);
    await this.#change(known, replaces, "DELETE", ({ metadata }) => ({ preconditions: { resourceVersion: metadata.resourceVersion } }));
  }

  observe(changed: (names: readonly string[]) => void): void {
    this.#observer = changed;
  }

  async #change(
    known: WarmSnapshot,
    replaces: string | null,
    verb: "PUT" | "DELETE",
    body: (object: WarmSnapshot) => object,
  ): Promise<void> {
    const path = `${this.#path}/${known.metadata.name}`;
    for (let tried = 0; tried < TRIES; tried++) {
      const found = await this.#api.request<WarmSnapshot>("GET", path);
      const current = found.status === "ok" ? versionOf(found.body) : null;
      if (found.status !== "ok" || current !== replaces) {
        await this.#changed(keyOf(known), replaces);
        throw new Conflict(`${known.metadata.name} has version ${current}, not ${replaces}`);
      }
      const changed = await this.#api.request<WarmSnapshot>(verb, path, body(found.body));
      if (changed.status === "conflict") continue;
      if (changed.status === "missing") throw new Conflict(`${known.metadata.name} was removed`);
      if (verb === "PUT") await this.#seen(changed.body);
      else await this.#cache.seen((all) => !all.some(({ metadata }) => metadata.uid === known.metadata.uid));
      return;
    }
    throw new ForkdError("BUSY", `Cannot change ${keyOf(known)}: other gateways changed it at the same time.`);
  }

  /** After a conflict the caller may try again with what it then reads here */
  async #changed(key: string, from: string | null): Promise<void> {
    await this.#cache.seen(() => (this.#live.get(key)?.version ?? null) !== from);
  }

  /** Reads of this gateway see its own write */
  async #seen(written: WarmSnapshot): Promise<void> {
    const { uid, generation = 0 } = written.metadata;
    await this.#cache.seen((all) => all.some(({ metadata }) => metadata.uid === uid && (metadata.generation ?? 0) >= generation));
  }

  #lacking(): ForkdError {
    return new ForkdError("CLUSTER_STATE_UNAVAILABLE", "Cannot change a tag: Kubernetes has no WarmSnapshots.", {
      hint: "Apply deploy/kubernetes/cluster/warm-snapshot.yaml.",
    });
  }

  #read(): void {
    const live = new Map<string, Stored>();
    for (const [key, object] of byTag(this.#cache.list())) {
      const version = versionOf(object);
      const known = this.#live.get(key);
      live.set(key, known?.version === version ? known : { value: valueOf(object), version });
    }
    const names = new Set([...live.keys(), ...this.#live.keys()]);
    const changed = [...names].filter((key) => live.get(key) !== this.#live.get(key));
    const now = Date.now();
    for (const key of changed) if (!live.has(key)) this.#removed.set(key, now);
    for (const [key, at] of this.#removed) if (live.has(key) || at < now - KEEP_REMOVED_MS) this.#removed.delete(key);
    this.#live = live;
    if (changed.length > 0) this.#observer?.(changed);
  }
}

/** Changes with the spec and not with the status */
function versionOf({ metadata }: WarmSnapshot): string {
  return `${metadata.uid ?? ""}/${metadata.generation ?? 0}`;
}

function valueOf(object: WarmSnapshot): Record<string, unknown> {
  return { ...object.spec.about, tag: object.spec.tag, node: makerOf(object) ?? "" };
}

function specOf({ tag: _tag, node, ...about }: Record<string, unknown>): Pick<WarmSpec, "source" | "about"> {
  return { source: madeBy(String(node)), about };
}
