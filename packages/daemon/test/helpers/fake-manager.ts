// A manager without VMs: methods that a test does not replace refuse the call.

import { ForkdError } from "@forkd/runtime/errors";
import type { Event } from "../../src/api/daemon.ts";
import type { SandboxInfo } from "../../src/api/sandbox.ts";
import type { ManagerApi } from "../../src/service/manager.ts";

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
    const nothing = { project: "default", sandbox: null, snapshot: null, principal: null, reason: null, metadata: null };
    this.journal.push({ ...nothing, ...facts, id: this.journal.length + 1, time: new Date().toISOString() });
    for (const listener of this.#listeners) listener();
  }

  list(project: string, { since = 0, limit = Infinity }: { since?: number | undefined; limit?: number | undefined }): Event[] {
    return this.journal.slice(since, since + limit).filter((event) => event.project === project);
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}

type Parts = { [P in keyof ManagerApi]?: ManagerApi[P] extends object ? Partial<ManagerApi[P]> : ManagerApi[P] };

export function fakeManager(parts: Parts = {}): ManagerApi {
  const missing = { get: (target: object, name: string) => Reflect.get(target, name) ?? refuse(name) };
  // by default, looks up ids with the test's `sandboxes.get`
  const find = (id: string, project = "default"): SandboxInfo | undefined => {
    try {
      return parts.sandboxes?.get?.(id, { project });
    } catch (error) {
      if (error instanceof ForkdError && error.code === "NOT_FOUND") return undefined;
      throw error;
    }
  };
  const ports = { find, ...parts.ports };
  const moves = { nodeOf: () => undefined, ...parts.moves };
  const quotas = { request: () => undefined, ...parts.quotas };
  const nothing = { items: [], nextCursor: null };
  const lease = async (id: string, viewer: { project: string }): Promise<{ release(): void }> => {
    parts.sandboxes?.get?.(id, viewer);
    return { release: () => undefined };
  };
  const sandboxes = { list: () => nothing, lease, ...parts.sandboxes };
  const snapshots = { list: async () => nothing, ...parts.snapshots };
  const all: Record<string, unknown> = { events: new FakeEvents(), ...parts, ports, quotas, sandboxes, snapshots, moves };
  for (const name of [
    "sandboxes",
    "networks",
    "execution",
    "contexts",
    "files",
    "processes",
    "ports",
    "branches",
    "snapshots",
    "images",
    "workspaces",
    "quotas",
    "moves",
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
  return { id, project: "default", snapshot_tag: "base", state: "running", metadata: {}, created_by: "local" } as unknown as SandboxInfo;
}
