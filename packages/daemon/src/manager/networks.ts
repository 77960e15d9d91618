// What sandboxes may connect to: shown, changed, written down.

import type { NetworkInfo, SetNetwork } from "../api/network.ts";
import { ForkdError } from "../errors.ts";
import type { ConnectionEvent, Owner } from "../net/network.ts";
import type { ConnectionRecord } from "../net/outgoing.ts";
import type { NetworkPolicy } from "../net/policy.ts";
import type { ConnectionEntry } from "../observe/audit.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { Caller } from "./caller.ts";
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

  get(id: string): NetworkInfo {
    return networkInfo(liveOf(this.#registry.get(id)));
  }

  /** In force when it is answered, and what is no longer allowed is cut off */
  async set(id: string, request: SetNetwork, caller: Caller): Promise<NetworkInfo> {
    const entry = this.#registry.get(id);
    const sandbox = liveOf(entry);
    const before = sandbox.network.policy;
    const policy = policyOf(request, caller, this.#core.runtime.network);
    // the guest is asked only where it has to be opened: whatever it does, it can be closed
    if (before.mode === "none" && policy.mode !== "none") {
      await this.#sandboxes.use(id, async () => sandbox.prepareNetwork(policy));
      if (sandbox.network.policy !== before) throw new ForkdError("BUSY", `Cannot change the network of ${id}: it was changed meanwhile.`);
    }
    const event = { type: "sandbox.network", principal: caller.principal, metadata: { mode: policy.mode } } as const;
    // in force first: what is cut off need not wait for the disk, and nothing else happens before it is written down
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

  /** Only so that programs fail at once; nothing passes in any case */
  #close(sandbox: Sandbox, policy: NetworkPolicy): void {
    sandbox.prepareNetwork(policy).catch((error: unknown) => {
      this.#core.log.warn({ sandbox: sandbox.id, err: error }, "a guest did not close its network");
    });
  }
}

/** A line of the audit log */
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

function facts({
  name,
  ip,
  port,
  decision,
  reason,
  error,
  bytesUp,
  bytesDown,
  ms,
}: ConnectionRecord): Omit<NetworkInfo["recent"][number], "time" | "open"> {
  return { name, ip, port, decision, reason, error, bytes_up: bytesUp, bytes_down: bytesDown, ms: Math.round(ms) };
}
