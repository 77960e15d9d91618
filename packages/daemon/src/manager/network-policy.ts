// A policy as the API says it, and as it is kept.

import type { NetworkPolicyInfo, SetNetwork } from "../api/network.ts";
import { ForkdError } from "../errors.ts";
import type { Network } from "../net/network.ts";
import { inwardRules, type NetworkPolicy } from "../net/policy.ts";
import type { Caller } from "./caller.ts";

/** Throws FORBIDDEN for rules into the host's own network by somebody who may only use sandboxes */
export function policyOf({ mode, allow = [], egress_limit_bytes }: SetNetwork, caller: Caller, network: Network): NetworkPolicy {
  const [inward] = caller.isAdmin ? [] : inwardRules(allow, (address) => network.isOwn(address));
  if (inward !== undefined)
    throw new ForkdError("FORBIDDEN", `Cannot allow ${inward}: a rule for addresses that are not public needs the scope admin.`);
  return { mode, allow, egressLimitBytes: egress_limit_bytes ?? null };
}

export function policyInfo({ mode, allow, egressLimitBytes }: NetworkPolicy): NetworkPolicyInfo {
  return { mode, allow, egress_limit_bytes: egressLimitBytes };
}
