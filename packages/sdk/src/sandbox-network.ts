// The network of one sandbox.

import type { Controller } from "./controller.ts";
import type { CallOptions, NetworkOptions } from "./options.ts";
import type { Network } from "./schema.gen.ts";

/** What a sandbox may connect to, decided by the daemon. */
export class SandboxNetwork {
  private readonly controller: Controller;
  private readonly id: string;

  constructor(controller: Controller, id: string) {
    this.controller = controller;
    this.id = id;
  }

  /** The rules, the counters and the last connections. */
  async get(opts: CallOptions = {}): Promise<Network> {
    return await this.controller.getNetwork(this.id, opts);
  }

  /**
   * Replaces the rules. They are in force when this resolves: connections that are no longer allowed are cut off.
   *
   * @throws InvalidRequestError for what is no rule
   * @example
   * ```ts
   * await sandbox.network.set({ mode: "allow", allow: ["*.example.org:443", "10.1.2.0/24:5432"] });
   * ```
   */
  async set(network: NetworkOptions, opts: CallOptions = {}): Promise<Network> {
    return await this.controller.setNetwork(this.id, network, opts);
  }
}
