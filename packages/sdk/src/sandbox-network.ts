// The network of one sandbox.

import type { Controller } from "./controller.ts";
import type { CallOptions } from "./call-options.ts";
import type { NetworkOptions } from "./options.gen.ts";
import type { Network } from "./schema.gen.ts";

/** Network policy of a sandbox, enforced by the daemon. */
export class SandboxNetwork {
  private readonly controller: Controller;
  private readonly id: string;

  constructor(controller: Controller, id: string) {
    this.controller = controller;
    this.id = id;
  }

  /** Policy, counters and recent connections. */
  async get(opts: CallOptions = {}): Promise<Network> {
    return await this.controller.getNetwork(this.id, opts);
  }

  /**
   * Replaces the policy. It is in force when this resolves: connections that it does not allow are closed.
   *
   * @throws InvalidRequestError for an invalid rule
   * @example
   * ```ts
   * await sandbox.network.set({ mode: "allow", allow: ["*.example.org:443", "10.1.2.0/24:5432"] });
   * ```
   */
  async set(network: NetworkOptions, opts: CallOptions = {}): Promise<Network> {
    return await this.controller.setNetwork(this.id, network, opts);
  }
}
