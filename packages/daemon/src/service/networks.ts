// Network policies of sandboxes: read, change, and audit of connections.

import type { ConnectionFacts, NetworkInfo, SetNetwork } from "../api/network.ts";
import { ForkdError } from "@forkd/runtime/errors";
import type { ConnectionEvent, Owner } from "@forkd/runtime/egress/network";
import type { ConnectionRecord } from "@forkd/runtime/egress/outgoing";
import type { NetworkPolicy } from "@forkd/runtime/egress/policy";
import type { ConnectionEntry } from "../observe/audit.ts";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import type { Caller, Viewer } from "./caller.ts";
import type { Core } from "./core.ts";
import { policyInfo, policyOf } from "./network-policy.ts";
import type { Registry } from "./registry.ts";
import { liveOf, type Sandboxes } from "./sandboxes.ts";

export class Networks {
  readonly #core: Core;
  readonly #registry: Registry;
  readonly #sandboxes: Sandboxes;

  constructor(core: Core, parts: { registry: Registry; sandboxes: Sandboxes }) {
    this.#core = core;
    this.#registry = parts.registry;
    this.#sandboxes = parts.sandboxes;
  }

  get(id: string, viewer: Viewer): NetworkInfo {
    return networkInfo(liveOf(this.#registry.get(id, viewer)));
  }

  /** Takes effect before it resolves; connections that are no longer allowed are closed */
  async set(id: string, request: SetNetwork, caller: Caller): Promise<NetworkInfo> {
    const entry = this.#registry.get(id, caller);
    const sandbox = liveOf(entry);
    const before = sandbox.network.policy;
    const policy = policyOf(request, caller, this.#core.runtime.network);
    // only opening needs the guest's cooperation: closing must work with a hostile guest
    if (before.mode === "none" && policy.mode !== "none") {
      await this.#sandboxes.use(id, caller, async () => sandbox.prepareNetwork(policy));
      if (sandbox.network.policy !== before) throw new ForkdError("BUSY", `Cannot change the network of ${id}: it was changed meanwhile.`);
    }
    const event = { type: "sandbox.network", principal: caller.principal, metadata: { mode: policy.mode } } as const;
    // apply first: closing connections must not wait for the disk, and no other code runs before the row is written
    sandbox.network.set(policy);
    try {
      this.#registry.change(entry, { network: policy, egress_bytes: sandbox.network.spent }, event);
    } catch (error) {
      sandbox.network.set(before);
      throw error;
    }
    if (before.mode !== "none" && policy.mode === "none") this.#close(sandbox, policy);
    return networkInfo(sandbox);
  }

  /** Lets programs in the guest fail immediately; the host blocks their traffic in any case */
  #close(sandbox: Sandbox, policy: NetworkPolicy): void {
    sandbox.prepareNetwork(policy).catch((error: unknown) => {
      this.#core.log.warn({ sandbox: sandbox.id, err: error }, "a guest did not close its network");
    });
  }
}

/** Audit log entry of a connection */
export function connectionEntry(owner: Owner, principal: string | null, event: ConnectionEvent, record: ConnectionRecord): ConnectionEntry {
  return { connection: event, ...owner, principal, ...facts(record) };
}

function networkInfo({ network }: Sandbox): NetworkInfo {
  const { open, total, refused, bytesUp, bytesDown, recent } = network.stats;
  return {
    ...policyInfo(network.policy),
    egress_used_bytes: network.spent,
    connections_open: open,
    connections_total: total,
    connections_refused: refused,
    bytes_up: bytesUp,
    bytes_down: bytesDown,
    recent: recent.map((record) => ({ time: record.time.toISOString(), ...facts(record), open: record.open })),
  };
}

function facts({ name, ip, port, decision, reason, error, bytesUp, bytesDown, ms }: ConnectionRecord): ConnectionFacts {
  return { name, ip, port, decision, reason, error, bytes_up: bytesUp, bytes_down: bytesDown, ms: Math.round(ms) };
}
