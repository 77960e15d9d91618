// Small records in one Secret of a fixed name: a role can allow changes of a named object, but not the creation of some.

import { setTimeout as sleep } from "node:timers/promises";
import * as z from "zod";
import { ForkdError } from "@forkd/runtime/errors";
import { Semaphore } from "@forkd/runtime/util/semaphore";
import { Conflict, type Removed, type Stored } from "../state/state.ts";

import type { KubernetesApi } from "./api.ts";
import type { Cache } from "./cache.ts";
import type { Shelf } from "./state.ts";

/** Kubernetes allows 1 MiB per Secret */
const MAX_BYTES = 960 * 1024;
const KEEP_REMOVED_MS = 24 * 3600 * 1000;
/** Other gateways write the same Secret; this one writes it once at a time */
const TRIES = 20;
const RETRY_MOST_MS = 100;

/** One entry of the Secret; `value` null: removed at that time */
const entry = z.object({ name: z.string(), version: z.int(), value: z.record(z.string(), z.unknown()).nullable(), at_ms: z.number() });
type Entry = z.infer<typeof entry>;

export type SecretObject = { metadata?: { name?: string; resourceVersion?: string }; data?: Record<string, string> };

/** The Secret as the API server answered, and the changed entry in it */
type Written = { secret: SecretObject; entry: Entry };

export class RecordSecret implements Shelf {
  readonly #api: KubernetesApi;
  readonly #path: string;
  readonly #name: string;
  readonly #cache: Cache<SecretObject>;
  readonly #writing = new Semaphore(1);
  #entries = new Map<string, Entry>();
  #live = new Map<string, Stored>();
  #observer: ((names: readonly string[]) => void) | null = null;

  /** @param cache list of the Secrets with this name, which are one or none */
  constructor(api: KubernetesApi, name: string, cache: Cache<SecretObject>) {
    this.#api = api;
    this.#name = name;
    this.#path = `${api.path("v1", "secrets")}/${name}`;
    this.#cache = cache;
    cache.observe(() => this.#read());
  }

  all(): ReadonlyMap<string, Stored> {
    return this.#live;
  }

  removed(): readonly Removed[] {
    const since = Date.now() - KEEP_REMOVED_MS;
    return [...this.#entries.values()].flatMap(({ name, value, at_ms: removedAtMs }) =>
      value === null && removedAtMs > since ? [{ name, removedAtMs }] : [],
    );
  }

  async put(name: string, value: Record<string, unknown>, replaces: string | null): Promise<void> {
    await this.#change(name, value, replaces);
  }

  async remove(name: string, replaces: string): Promise<void> {
    await this.#change(name, null, replaces);
  }

  observe(changed: (names: readonly string[]) => void): void {
    this.#observer = changed;
  }

  async #change(name: string, value: Record<string, unknown> | null, replaces: string | null): Promise<void> {
    const { secret, entry } = await this.#writing.run(async () => this.#write(name, value, replaces));
    const version = secret.metadata?.resourceVersion;
    // Reads of this gateway see its own write; a later one has the same or a higher version of the entry.
    await this.#cache.seen(([seen]) => seen?.metadata?.resourceVersion === version || this.#isNewer(name, entry));
  }

  async #write(name: string, value: Record<string, unknown> | null, replaces: string | null): Promise<Written> {
    for (let tried = 0; tried < TRIES; tried++) {
      const found = await this.#api.request<SecretObject>("GET", this.#path);
      if (found.status !== "ok") throw this.#lacking();
      const secret = found.body;
      const entries = entriesIn(secret);
      const known = entries.get(name);
      const current = known?.value ? String(known.version) : null;
      if (current !== replaces) {
        // the caller may try again with what it then reads here
        await this.#cache.seen(() => (this.#live.get(name)?.version ?? null) !== replaces);
        throw new Conflict(`${this.#name}/${name} has version ${current}, not ${replaces}`);
      }
      const now = Date.now();
      const changed = { name, version: (known?.version ?? 0) + 1, value, at_ms: now };
      entries.set(name, changed);
      for (const [other, entry] of entries) if (entry.value === null && entry.at_ms < now - KEEP_REMOVED_MS) entries.delete(other);
      const data = dataOf(entries);
      if (JSON.stringify(data).length > MAX_BYTES)
        throw new ForkdError("LIMIT_REACHED", `Cannot store ${name}: the Secret ${this.#name} is full.`, {
          hint: "Remove tokens or projects that are not needed.",
        });
      const written = await this.#api.request<SecretObject>("PUT", this.#path, { ...secret, data });
      if (written.status === "missing") throw this.#lacking();
      if (written.status === "conflict") {
        await sleep(Math.random() * RETRY_MOST_MS);
        continue;
      }
      return { secret: written.body, entry: changed };
    }
    throw new ForkdError("BUSY", `Cannot store ${name}: other gateways changed the Secret ${this.#name} at the same time.`);
  }

  #isNewer(name: string, written: Entry): boolean {
    return (this.#entries.get(name)?.version ?? 0) >= written.version;
  }

  #lacking(): ForkdError {
    return new ForkdError("CLUSTER_STATE_UNAVAILABLE", `Cannot change the state of the cluster: there is no Secret ${this.#name}.`, {
      hint: "Apply deploy/kubernetes/cluster/state.yaml.",
    });
  }

  #read(): void {
    const [secret] = this.#cache.list();
    const entries = secret ? entriesIn(secret) : new Map<string, Entry>();
    const names = new Set([...entries.keys(), ...this.#entries.keys()]);
    const changed = [...names].filter((name) => entries.get(name)?.version !== this.#entries.get(name)?.version);
    // Objects of unchanged records stay the same: what was derived from them stays valid.
    const live = new Map<string, Stored>();
    for (const [name, { value, version }] of entries) {
      if (value === null) continue;
      const known = this.#live.get(name);
      live.set(name, known && !changed.includes(name) ? known : { value, version: String(version) });
    }
    this.#entries = entries;
    this.#live = live;
    if (changed.length > 0) this.#observer?.(changed);
  }
}

/** Entries that no gateway wrote are left out */
function entriesIn({ data = {} }: SecretObject): Map<string, Entry> {
  const entries = new Map<string, Entry>();
  for (const text of Object.values(data)) {
    const read = entry.safeParse(jsonIn(Buffer.from(text, "base64").toString()));
    if (read.success) entries.set(read.data.name, read.data);
  }
  return entries;
}

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Keys of a Secret are more limited than names of records, so that they are encoded */
function dataOf(entries: ReadonlyMap<string, Entry>): Record<string, string> {
  const encode = (text: string, as: "base64" | "base64url"): string => Buffer.from(text).toString(as);
  return Object.fromEntries([...entries].map(([name, entry]) => [encode(name, "base64url"), encode(JSON.stringify(entry), "base64")]));
}
