// Calls about the daemon itself, its tokens and its events.

import { Client } from "./client.ts";
import { eventsOf } from "./events.ts";
import { path, split } from "./wire.ts";
import type { CallOptions, ControllerOptions, CreateTokenOptions, EventsOptions, GcOptions, StopOptions } from "./options.ts";
import type * as wire from "./schema.gen.ts";

/** Collecting garbage may read a lot */
const GC_MS = 10 * 60_000;

export class DaemonCalls {
  /** @internal */
  protected readonly client: Client;

  constructor(opts: ControllerOptions = {}) {
    this.client = new Client(opts);
  }

  /** Where requests go, such as `unix:///run/user/1000/forkd/forkd.sock` or `https://host:8889` */
  get url(): string {
    return this.client.url;
  }

  /** Whether the daemon answers. Needs no token. */
  async health(opts: CallOptions = {}): Promise<wire.Health> {
    return await this.client.json("GET", "/healthz", opts);
  }

  /** Whether the daemon takes work, and if not, why. Needs no token. */
  async ready(opts: CallOptions = {}): Promise<wire.Readiness> {
    return await this.client.json("GET", "/readyz", { ...opts, answers: [503] });
  }

  /** The daemon's version. */
  async version(opts: CallOptions = {}): Promise<wire.Version> {
    return await this.client.json("GET", "/version", opts);
  }

  /** Metrics in Prometheus' text format. */
  async metrics(opts: CallOptions = {}): Promise<string> {
    return await this.client.text("GET", "/metrics", opts);
  }

  /** The OpenAPI document of the daemon that answers. */
  async openapi(opts: CallOptions = {}): Promise<{ openapi: string; [key: string]: unknown }> {
    return await this.client.json("GET", "/v1/openapi.json", opts);
  }

  /** The daemon and its host: accelerator, limits, how many of everything. */
  async status(opts: CallOptions = {}): Promise<wire.Status> {
    return await this.client.json("GET", "/v1/status", opts);
  }

  /** The daemon's settings and where each comes from. Scope admin. */
  async config(opts: CallOptions = {}): Promise<wire.Config> {
    return await this.client.json("GET", "/v1/config", opts);
  }

  /**
   * Stops the daemon once all requests are answered. Scope admin.
   * Sandboxes go on, and the next daemon adopts them, unless `killSandboxes` is set.
   * @throws ConflictError with `ifIdle`, when somebody uses the daemon (IN_USE)
   */
  async stop(opts: StopOptions = {}): Promise<void> {
    const { fields, call } = split(opts);
    const json: wire.Stop = fields;
    await this.client.empty("POST", "/v1/stop", { ...call, json });
  }

  /** Removes what nothing refers to; with `dryRun` only says what that would be. Scope admin. */
  async gc(opts: GcOptions = {}): Promise<wire.GarbageCollected> {
    const { fields, call } = split(opts);
    const json: wire.CollectGarbage = fields;
    return await this.client.json("POST", "/v1/gc", { ...call, timeoutMs: call.timeoutMs ?? GC_MS, json });
  }

  /** The lineage of snapshots and sandboxes. */
  async tree(opts: CallOptions = {}): Promise<wire.Tree> {
    return await this.client.json("GET", "/v1/tree", opts);
  }

  /** What every live sandbox uses. */
  async stats(opts: CallOptions = {}): Promise<wire.SandboxStats[]> {
    return await this.client.json("GET", "/v1/stats", opts);
  }

  /**
   * Every change of state, as it happens. A lost connection is made again and goes on after the last event that came; the
   * iteration ends when the signal aborts.
   *
   * @throws ForkdError when the first connection fails, or a later one for another reason than the network
   * @example
   * ```ts
   * for await (const event of controller.events({ types: ["sandbox.ended", "sandbox.lost"], signal })) {
   *   console.log(event.sandbox, event.reason);
   * }
   * ```
   */
  events(opts: EventsOptions = {}): AsyncIterable<wire.Event> {
    return eventsOf(this.client, opts);
  }

  /** Tokens, without their values. Scope admin. */
  async listTokens(opts: CallOptions = {}): Promise<wire.Token[]> {
    return await this.client.json("GET", "/v1/tokens", opts);
  }

  /**
   * Makes a token; its value is in the answer and nowhere else. Scope admin.
   * @throws ConflictError when the name is taken
   */
  async createToken(name: string, opts: CreateTokenOptions = {}): Promise<wire.NewToken> {
    const { fields, call } = split(opts);
    const json: wire.CreateToken = { name, ...fields };
    return await this.client.json("POST", "/v1/tokens", { ...call, json });
  }

  /** Gives a token a new value; the old one ends at once. Scope admin. */
  async rotateToken(name: string, opts: CallOptions = {}): Promise<wire.NewToken> {
    return await this.client.json("POST", path`/v1/tokens/${name}/rotate`, opts);
  }

  /** Revokes a token. Scope admin. */
  async deleteToken(name: string, opts: CallOptions = {}): Promise<void> {
    await this.client.empty("DELETE", path`/v1/tokens/${name}`, opts);
  }
}
