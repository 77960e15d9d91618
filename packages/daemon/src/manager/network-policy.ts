// A policy as the API says it, and as it is kept.

import type { NetworkPolicyInfo, SetNetwork } from "../api/network.ts";
import type { NetworkPolicy } from "../net/policy.ts";

export function policyOf({ mode, allow, egress_limit_bytes }: SetNetwork): NetworkPolicy {
  return { mode, allow: allow ?? [], egressLimitBytes: egress_limit_bytes ?? null };
}

export function policyInfo({ mode, allow, egressLimitBytes }: NetworkPolicy): NetworkPolicyInfo {
  return { mode, allow, egress_limit_bytes: egressLimitBytes };
}
