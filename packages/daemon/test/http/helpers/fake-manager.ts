// A manager without VMs: what a test does not replace, refuses.

import { ForkdError } from "../../../src/errors.ts";
import type { Event } from "../../../src/api/daemon.ts";
import type { SandboxInfo } from "../../../src/api/sandbox.ts";
import type { ManagerApi } from "../../../src/http/services.ts";

export class FakeEvents {
  readonly journal: Event[] = [];
  readonly #listeners = new Set<() => void>();

  get lastId(): number {
    return this.journal.length;
  }

  get listeners(): number {
    return this.#listeners.size;
  }

  add(facts: Partial<Event> & Pick<Event, "type">): void {
    const nothing = { sandbox: null, snapshot: null, principal: null, reason: null, metadata: null };
    this.journal.push({ ...nothing, ...facts, id: this.journal.length + 1, time: new Date().toISOString() });
    for (const listener of this.#listeners) listener();
  }

  list({ since = 0, limit = Infinity }: { since?: number | undefined; limit?: number | undefined }): Event[] {
    return this.journal.slice(since, since + limit);
  }

  subscribe(listener: (event: Event) => void): () => void {
    const wake = (): void => listener(this.journal.at(-1) as Event);
    this.#listeners.add(wake);
    return () => void this.#listeners.delete(wake);
  }
}

type Parts = { [P in keyof ManagerApi]?: ManagerApi[P] extends object ? Partial<ManagerApi[P]> : ManagerApi[P] };

export function fakeManager(parts: Parts = {}): ManagerApi {
  const missing = { get: (target: object, name: string) => Reflect.get(target, name) ?? refuse(name) };
  const all: Record<string, unknown> = { events: new FakeEvents(), ...parts };
  for (const name of [
    "sandboxes",
    "networks",
    "inside",
    "contexts",
    "files",
    "processes",
    "ports",
    "branches",
    "snapshots",
    "images",
    "workspaces",
  ]) {
    all[name] = new Proxy(all[name] ?? {}, missing);
  }
  return all as ManagerApi;
}

function refuse(name: string): () => never {
  return () => {
    throw new ForkdError("NOT_FOUND", `There is no ${name} in this fake.`);
  };
}

export function sandboxInfo(id: string): SandboxInfo {
  return { id, snapshot_tag: "base", state: "running", metadata: {}, created_by: "local" } as unknown as SandboxInfo;
}
