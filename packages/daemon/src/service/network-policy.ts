// Network policies: conversion from the API's form, and restrictions for packs.

import type { NetworkPolicyInfo, SetNetwork } from "../api/network.ts";
import { ForkdError } from "@forkd/runtime/errors";
import type { Network } from "@forkd/runtime/egress/network";
import { inwardRules, NO_NETWORK, type NetworkPolicy } from "@forkd/runtime/egress/policy";
import type { Caller } from "./caller.ts";

/** Limit of rules in a warning: a pack can have thousands, of any length and with any characters */
const MAX_SHOWN = 8;
const PLAIN_RULE = /^[\x21-\x7e]{1,100}$/;

/** Throws FORBIDDEN if a caller without scope operator allows non-public addresses */
export function policyOf({ mode, allow = [], deny = [], egress_limit_bytes }: SetNetwork, caller: Caller, network: Network): NetworkPolicy {
  const [inward] = caller.isOperator ? [] : inwardRules(allow, (address) => network.isOwn(address));
  if (inward !== undefined)
    throw new ForkdError("FORBIDDEN", `Cannot allow ${inward}: a rule for addresses that are not public needs the scope operator.`);
  return { mode, allow, ...(deny.length > 0 ? { deny } : {}), egressLimitBytes: egress_limit_bytes ?? null };
}

/** Policy of a pack without rules for non-public addresses: its author must not open this host's network */
export function withoutInward(policy: NetworkPolicy, network: Network): NetworkPolicy {
  const inward = new Set(inwardRules(policy.allow, (address) => network.isOwn(address)));
  const allow = policy.allow.filter((rule) => !inward.has(rule));
  return policy.mode === "allow" && allow.length === 0 ? NO_NETWORK : { ...policy, allow };
}

/** Warning about rules of a pack that were dropped; undefined: none */
export function droppedWarning(policy: NetworkPolicy, kept: NetworkPolicy): string | undefined {
  const rules = policy.allow.filter((rule) => !kept.allow.includes(rule));
  const shown = rules.filter((rule) => PLAIN_RULE.test(rule)).slice(0, MAX_SHOWN);
  if (rules.length > shown.length) shown.push(`${rules.length - shown.length} more`);
  if (policy.mode === "open" && kept.mode !== "open") shown.unshift("any public address");
  if (policy.mode === "none" || shown.length === 0) return undefined;
  return `Not kept of the network policy in the pack: ${shown.join(", ")}. A fork connects there only if it is made with such a policy.`;
}

export function policyInfo({ mode, allow, deny, egressLimitBytes }: NetworkPolicy): NetworkPolicyInfo {
  return { mode, allow, ...(deny ? { deny } : {}), egress_limit_bytes: egressLimitBytes };
}
