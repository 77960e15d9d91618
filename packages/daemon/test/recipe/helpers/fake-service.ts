// The services that builds use, without VMs: snapshots and sandboxes are records, and a sandbox logs its operations.

import { ForkdError } from "@forkd/runtime/errors";
import type { SnapshotInfo } from "../../../src/api/snapshot.ts";
import type { Caller } from "../../../src/service/caller.ts";
import type { Recipes } from "../../../src/recipe/recipes.ts";

type Services = ConstructorParameters<typeof Recipes>[0];
type Exec = (
  args: string[],
  signal: AbortSignal,
) => Promise<{ exit_code?: number; stdout?: string }> | { exit_code?: number; stdout?: string };

export const CALLER: Caller = {
  principal: "local",
  project: "default",
  isAdmin: true,
  maxSandboxes: null,
  requestId: "r",
  signal: new AbortController().signal,
};

type Sandbox = { id: string; metadata: Record<string, string>; history: string[]; from: string };

export class FakeService {
  readonly snapshotsByTag = new Map<string, SnapshotInfo & { history: string[] }>();
  readonly sandboxesById = new Map<string, Sandbox>();
  /** operations in order */
  readonly log: string[] = [];
  #next = 0;
  exec: Exec = () => ({});

  get services(): Services {
    return {
      images: {
        create: async (request: { name?: string }) => void this.log.push(`image ${request.name}`) as never,
        importFile: async (name: string) => void this.log.push(`import ${name}`) as never,
      },
      snapshots: {
        get: async (tag: string) => this.#get(tag),
        list: async ({ metadata = [] }: { metadata?: string[] | undefined }) => ({
          items: [...this.snapshotsByTag.values()].filter((each) =>
            metadata.every((pair) => each.metadata[pair.split("=")[0] ?? ""] === pair.split("=")[1]),
          ),
          nextCursor: null,
        }),
        create: async ({ tag, metadata }: { tag: string; metadata?: Record<string, string> | undefined }) => {
          this.log.push("boot");
          return this.add(tag, metadata, ["boot"]);
        },
        remove: async (tag: string) => {
          if (!this.snapshotsByTag.delete(tag)) throw new ForkdError("NOT_FOUND", `There is no snapshot ${tag}.`);
        },
        update: async (tag: string, { description = null }: { description?: string | null | undefined }) => {
          this.snapshotsByTag.set(tag, { ...this.#get(tag), description });
          this.log.push(`describe ${tag}`);
          return this.#get(tag);
        },
        publish: async (
          from: string,
          { tag, metadata, description }: { tag: string; metadata: Record<string, string>; description?: string | undefined },
        ) => {
          const made = this.#get(from);
          this.snapshotsByTag.delete(from);
          this.snapshotsByTag.set(tag, { ...made, tag, metadata, description: description ?? null });
          this.log.push(`publish ${tag}`);
          return this.#get(tag);
        },
      },
      branches: {
        branch: async (
          id: string,
          { tag = "", metadata = {} }: { tag?: string | undefined; metadata?: Record<string, string> | undefined },
        ) => {
          return { info: this.add(tag, metadata, [...(this.sandboxesById.get(id)?.history ?? [])]), waited: true };
        },
      },
      sandboxes: {
        list: () => ({ items: [...this.sandboxesById.values()], nextCursor: null }),
        create: async ({ snapshot_tag: from, metadata = {} }: { snapshot_tag: string; metadata?: Record<string, string> | undefined }) => {
          const { history } = this.#get(from);
          const sandbox = { id: `sb-${this.#next++}`, metadata, history: [...history], from };
          this.sandboxesById.set(sandbox.id, sandbox);
          return [sandbox];
        },
        remove: async (id: string) => {
          if (!this.sandboxesById.delete(id)) throw new ForkdError("NOT_FOUND", `There is no sandbox ${id}.`);
        },
      },
      networks: { set: async () => ({}) },
      execution: {
        exec: async (id: string, { args }: { args: string[] }, { signal }: Pick<Caller, "signal">) => {
          const { exit_code: code = 0, stdout = "" } = await this.exec(args, signal);
          this.log.push(`exec ${args.join(" ")}`);
          this.sandboxesById.get(id)?.history.push(args.join(" "));
          return { stdout, stderr: "", exit_code: code, signal: null, timed_out: false, truncated: false };
        },
        eval: async () => ({}),
      },
      processes: {},
      files: {
        write: async (id: string, { path }: { path: string }, content: AsyncIterable<Uint8Array>) => {
          let text = "";
          for await (const piece of content) text += Buffer.from(piece).toString();
          this.log.push(`write ${path} ${text}`);
          this.sandboxesById.get(id)?.history.push(`write ${path}`);
        },
      },
      ports: {},
    } as unknown as Services;
  }

  add(tag: string, metadata: Record<string, string> = {}, history: string[] = []): SnapshotInfo {
    if (this.snapshotsByTag.has(tag)) throw new ForkdError("EXISTS", `There is a snapshot ${tag}.`);
    const info = { tag, id: `sn-${this.#next++}`, status: "ready", bootable: true, metadata, network: null, history };
    this.snapshotsByTag.set(tag, info as unknown as SnapshotInfo & { history: string[] });
    return this.#get(tag);
  }

  tags(): string[] {
    return [...this.snapshotsByTag.keys()].toSorted();
  }

  #get(name: string): SnapshotInfo & { history: string[] } {
    const found = this.snapshotsByTag.get(name) ?? [...this.snapshotsByTag.values()].find(({ id }) => id === name);
    if (!found) throw new ForkdError("NOT_FOUND", `There is no snapshot ${name}.`);
    return found;
  }
}
