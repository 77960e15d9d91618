// Calls about sandboxes as wholes: made, listed, changed, branched, ended.

import { HubCalls } from "./hub-calls.ts";
import { pairs, path, split, toWire, withKey } from "./wire.ts";
import type {
  BranchOptions,
  CallOptions,
  ForkOptions,
  KillSandboxesOptions,
  ListSandboxesOptions,
  NetworkOptions,
  Page,
  SpawnOptions,
  UpdateSandboxOptions,
} from "./options.ts";
import type * as wire from "./schema.gen.ts";

/** On top of `timeoutMs` for each child of a fork */
const PER_CHILD_MS = 500;

export class SandboxCalls extends HubCalls {
  /** Sandboxes that run, are paused or suspended; others with `state`. Pages only when `limit` is given. */
  async listSandboxes(opts: ListSandboxesOptions = {}): Promise<Page<wire.Sandbox>> {
    const { signal, timeoutMs, metadata, state, ...rest } = opts;
    const query = { ...rest, state: Array.isArray(state) ? state.join(",") : state, metadata: pairs(metadata) };
    return await this.client.page("/v1/sandboxes", { signal, timeoutMs, query });
  }

  /**
   * Forks a snapshot into `n` sandboxes, all or none. Safe to repeat: the request carries an idempotency key.
   *
   * @throws NotFoundError when there is no such snapshot
   * @throws LimitError when the host has no room for them
   * @example
   * ```ts
   * const children = await controller.spawnSandboxes("python", { n: 10, ttlSecs: 600 });
   * ```
   */
  async spawnSandboxes(tag: string, opts?: SpawnOptions): Promise<wire.Sandbox[]>;
  /** The same as the older SDK has it, with the tag among the options. */
  async spawnSandboxes(opts: SpawnOptions & { snapshotTag: string }): Promise<wire.Sandbox[]>;
  async spawnSandboxes(first: string | (SpawnOptions & { snapshotTag: string }), rest: SpawnOptions = {}): Promise<wire.Sandbox[]> {
    const { snapshotTag, ...opts } = typeof first === "string" ? { ...rest, snapshotTag: first } : first;
    return await this.spawn(snapshotTag, opts, false);
  }

  /** Forks a snapshot into `n` sandboxes, each for itself: one outcome per child, in order. */
  async trySpawnSandboxes(tag: string, opts: SpawnOptions = {}): Promise<wire.ForkOutcome[]> {
    const { results } = await this.spawn<wire.ForkOutcomes>(tag, opts, true);
    return results;
  }

  /** One sandbox, by id or name. */
  async getSandbox(id: string, opts: CallOptions = {}): Promise<wire.Sandbox> {
    return await this.client.json("GET", path`/v1/sandboxes/${id}`, opts);
  }

  /** Renames a sandbox, replaces its metadata, extends its life. */
  async updateSandbox(id: string, opts: UpdateSandboxOptions): Promise<wire.Sandbox> {
    const { fields, call } = split(opts);
    const json: wire.UpdateSandbox = fields;
    return await this.client.json("PATCH", path`/v1/sandboxes/${id}`, { ...call, json });
  }

  /**
   * Ends a sandbox; resolves when its process, sockets and files are gone.
   * @throws NotFoundError when there is none
   */
  async killSandbox(id: string, opts: CallOptions = {}): Promise<void> {
    await this.client.empty("DELETE", path`/v1/sandboxes/${id}`, opts);
  }

  /** Ends all sandboxes of a snapshot (`tag`), or really all (`all`); resolves with their ids when they are gone. */
  async killSandboxes(opts: KillSandboxesOptions): Promise<string[]> {
    const { signal, timeoutMs, ...query } = opts;
    // Not repeated: the second answer would not name what the first one ended.
    return await this.client.json("DELETE", "/v1/sandboxes", { signal, timeoutMs, query, canRepeat: false });
  }

  /**
   * Takes a snapshot of a running sandbox, which goes on. Safe to repeat.
   * With `wait: false` the snapshot's status is still `writing`.
   *
   * @example
   * ```ts
   * const { tag, pause_ms } = await controller.branchSandbox(id, { tag: "after-login" });
   * ```
   */
  async branchSandbox(id: string, opts: BranchOptions = {}): Promise<wire.Snapshot> {
    const { fields, call } = split(opts);
    const json: wire.Branch = fields;
    return await this.client.json("POST", path`/v1/sandboxes/${id}/branch`, { ...withKey(call), json });
  }

  /** Branches a running sandbox and forks the branch into `n`, in one request. Safe to repeat. */
  async forkSandbox(id: string, opts: ForkOptions & { n?: number | undefined } = {}): Promise<wire.ForkedSandboxes> {
    const { fields, call } = split(opts);
    const json: wire.ForkSandbox = { ...fields, network: opts.network && toWire(opts.network) };
    return await this.client.json("POST", path`/v1/sandboxes/${id}/fork`, {
      ...withKey(call),
      timeoutMs: call.timeoutMs ?? this.forkTimeoutMs(opts.n),
      json,
    });
  }

  /** Stops a sandbox's CPUs; its memory stays. */
  async pauseSandbox(id: string, opts: CallOptions = {}): Promise<wire.Sandbox> {
    return await this.client.json("POST", path`/v1/sandboxes/${id}/pause`, opts);
  }

  /** Saves a sandbox's memory and disk and gives back what it uses; it keeps its id and its name. */
  async suspendSandbox(id: string, opts: CallOptions = {}): Promise<wire.Sandbox> {
    return await this.client.json("POST", path`/v1/sandboxes/${id}/suspend`, opts);
  }

  /** Lets a paused or suspended sandbox go on, with its clock set. */
  async resumeSandbox(id: string, opts: CallOptions = {}): Promise<wire.Sandbox> {
    return await this.client.json("POST", path`/v1/sandboxes/${id}/resume`, opts);
  }

  /** What one sandbox uses. */
  async sandboxStats(id: string, opts: CallOptions = {}): Promise<wire.SandboxStats> {
    return await this.client.json("GET", path`/v1/sandboxes/${id}/stats`, opts);
  }

  /** What a sandbox may connect to, and its last connections. */
  async getNetwork(id: string, opts: CallOptions = {}): Promise<wire.Network> {
    return await this.client.json("GET", path`/v1/sandboxes/${id}/network`, opts);
  }

  /** Changes what a sandbox may connect to, at once: connections that are no longer allowed are cut off. */
  async setNetwork(id: string, network: NetworkOptions, opts: CallOptions = {}): Promise<wire.Network> {
    const json: wire.SetNetwork = toWire(network);
    return await this.client.json("PUT", path`/v1/sandboxes/${id}/network`, { ...opts, json });
  }

  private async spawn<T>(tag: string, opts: SpawnOptions, perItem: boolean): Promise<T> {
    const { fields, call } = split(opts);
    const network = opts.network && toWire(opts.network);
    const json: wire.CreateSandboxes = { snapshot_tag: tag, ...fields, network, ...(perItem ? { per_item: true } : {}) };
    return await this.client.json("POST", "/v1/sandboxes", {
      ...withKey(call),
      timeoutMs: call.timeoutMs ?? this.forkTimeoutMs(opts.n),
      json,
    });
  }

  private forkTimeoutMs(n: number = 1): number {
    return this.client.timeoutMs === 0 ? 0 : this.client.timeoutMs + n * PER_CHILD_MS;
  }
}
