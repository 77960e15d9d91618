// E2B control API: network policy of a sandbox.

import * as z from "zod";
import { setNetwork, type SetNetwork } from "../../api/network.ts";
import { parse } from "../../dispatch/parse.ts";
import { unsupported } from "../unsupported.ts";
import type { Answer } from "../../dispatch/answer.ts";
import { forkdId } from "../../dispatch/e2b-id.ts";
import { isHostMask } from "../../dispatch/port-metadata.ts";
import { bodyOf, type ControlWork } from "../work.ts";

const ALL = new Set(["0.0.0.0/0", "::/0"]);

export const networkFields = z.object({
  allowOut: z.array(z.string()).nullish(),
  denyOut: z.array(z.string()).nullish(),
  rules: z.unknown().optional(),
  egressProxy: z.unknown().optional(),
  allowPublicTraffic: z.boolean().nullish(),
  maskRequestHost: z.string().refine(isHostMask, "must be a host such as localhost or localhost:${PORT}").nullish(),
});

type Network = z.infer<typeof networkFields>;

const updateRequest = networkFields.extend({ allow_internet_access: z.boolean().nullish() });

/** E2B's default is open internet access; private networks need an admin's rule */
export function policyOf(network: Network, mayConnect: boolean | null | undefined): SetNetwork {
  if (isGiven(network.rules)) throw unsupported("rules that change requests (network.rules)");
  if (isGiven(network.egressProxy)) throw unsupported("an egress proxy (network.egressProxy)");
  const allow = (network.allowOut ?? []).filter((rule) => !ALL.has(rule));
  const deny = network.denyOut ?? [];
  const isClosed = mayConnect === false || deny.some((rule) => ALL.has(rule));
  // allow rules take precedence over deny rules
  const isOpen = network.allowOut?.some((rule) => ALL.has(rule)) === true;
  const mode = isOpen || !isClosed ? "open" : allow.length > 0 ? "allow" : "none";
  if (mode === "none") return { mode };
  // with default deny, the deny rules are redundant
  return parse(setNetwork, mode === "open" && !isClosed ? { mode, allow, deny } : { mode, allow }, "body");
}

/** Replaces the whole policy, as E2B does */
export async function updateNetwork(work: ControlWork): Promise<Answer> {
  const { allow_internet_access: mayConnect, ...network } = await bodyOf(work, updateRequest);
  const { networks } = work.services.manager;
  await networks.set(forkdId(work.params["id"] ?? ""), policyOf(network, mayConnect), work.caller);
  return { status: 204 };
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null && !(typeof value === "object" && Object.keys(value).length === 0);
}
