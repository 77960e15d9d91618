// Notes sandboxes of forkd in the journal, as the objects that stand for them, and knows the id behind a name.

import { claimObject, namespaceOf, sandboxObject } from "./sandbox-objects.ts";
import type { SandboxInfo } from "@forkd/daemon/api/sandbox";
import type { Journal } from "./journal.ts";
import type { KubernetesObject } from "./objects.ts";
import type { Resource } from "./resources.ts";

type Shown = "sandboxes" | "sandboxclaims";
type Key = { namespace: string; name: string };
type Noted = Partial<Record<Shown, Key>>;

const SHOWN: readonly Shown[] = ["sandboxes", "sandboxclaims"];

export class SandboxIndex {
  readonly #journal: Journal;
  /** code of the node that has a sandbox */
  readonly #nodeOf: (id: string) => string;
  /** by id */
  readonly #noted = new Map<string, Noted>();
  /** by "RESOURCE NAMESPACE/NAME" */
  readonly #ids = new Map<string, string>();

  constructor(journal: Journal, nodeOf: (id: string) => string) {
    this.#journal = journal;
    this.#nodeOf = nodeOf;
  }

  /** null: no claim made it */
  object(resource: Shown, info: SandboxInfo): KubernetesObject | null {
    return resource === "sandboxes" ? sandboxObject(info, this.#nodeOf(info.id)) : claimObject(info);
  }

  /** @param asOf version of the journal before the state was read */
  note(info: SandboxInfo, asOf: bigint): void {
    const namespace = namespaceOf(info.project);
    if (namespace === null) return;
    const objects = { sandboxes: this.object("sandboxes", info), sandboxclaims: this.object("sandboxclaims", info) };
    const before = this.#noted.get(info.id) ?? {};
    const noted: Noted = {};
    for (const resource of SHOWN) {
      const object = objects[resource];
      const old = before[resource];
      // a new name is another object
      if (old && old.name !== object?.metadata.name) this.#drop(resource, old, info.id, asOf);
      if (!object) continue;
      const key = { namespace, name: object.metadata.name };
      noted[resource] = key;
      this.#ids.set(idKey(resource, key), info.id);
      this.#journal.note(resource, key, object, asOf);
    }
    this.#noted.set(info.id, noted);
  }

  gone(id: string, asOf?: bigint): void {
    const noted = this.#noted.get(id);
    if (!noted) return;
    this.#noted.delete(id);
    for (const resource of SHOWN) {
      const key = noted[resource];
      if (key) this.#drop(resource, key, id, asOf);
    }
  }

  /** Notes a complete list. Returns the ids for which it would have an entry and has none: they are gone, or have moved */
  noteAll(infos: readonly SandboxInfo[], covers: (object: KubernetesObject) => boolean, asOf: bigint): string[] {
    for (const info of infos) this.note(info, asOf);
    const listed = new Set(infos.map(({ id }) => id));
    return this.#journal.all("sandboxes").flatMap((object) => {
      const id = this.idOf("sandboxes", object.metadata);
      return id !== undefined && !listed.has(id) && covers(object) ? [id] : [];
    });
  }

  idOf(resource: Resource, key: Key): string | undefined {
    return this.#ids.get(idKey(resource, key));
  }

  #drop(resource: Shown, key: Key, id: string, asOf?: bigint): void {
    // another sandbox may have the name meanwhile
    if (this.#ids.get(idKey(resource, key)) !== id) return;
    this.#ids.delete(idKey(resource, key));
    this.#journal.note(resource, key, null, asOf);
  }
}

function idKey(resource: Resource, { namespace, name }: Key): string {
  return `${resource} ${namespace}/${name}`;
}
