// What a sandbox may connect to, as E2B's API says it.

import * as z from "zod";
import { setNetwork, type SetNetwork } from "../../api/network.ts";
import { parse } from "../../http/validate.ts";
import { unsupported } from "../unsupported.ts";
import type { AnyAnswer } from "../../http/handler.ts";
import { forkdId } from "../ids.ts";
import { bodyOf, type ControlWork } from "../work.ts";

const ALL = new Set(["0.0.0.0/0", "::/0"]);

export const networkFields = z.object({
  allowOut: z.array(z.string()).nullish(),
  denyOut: z.array(z.string()).nullish(),
  rules: z.unknown().optional(),
  egressProxy: z.unknown().optional(),
  allowPublicTraffic: z.boolean().nullish(),
  maskRequestHost: z.string().nullish(),
});

type Network = z.infer<typeof networkFields>;

const updateRequest = networkFields.extend({ allow_internet_access: z.boolean().nullish() });

/** E2B's sandboxes reach the internet unless told otherwise; private networks none of them does without a rule of an admin */
export function policyOf(network: Network, mayConnect: boolean | null | undefined): SetNetwork {
  if (isGiven(network.rules)) throw unsupported("rules that change requests on their way (network.rules)");
  if (isGiven(network.egressProxy)) throw unsupported("an egress proxy (network.egressProxy)");
  if (network.maskRequestHost) throw unsupported("another Host for servers (network.maskRequestHost)");
  const allow = (network.allowOut ?? []).filter((rule) => !ALL.has(rule));
  const deny = network.denyOut ?? [];
  const isClosed = mayConnect === false || deny.some((rule) => ALL.has(rule));
  // what is allowed goes before what is denied
  const isOpen = network.allowOut?.some((rule) => ALL.has(rule)) === true;
  if (!isClosed && deny.length > 0)
    throw unsupported("denying single addresses: denyOut takes 0.0.0.0/0, with what is allowed in allowOut");
  const mode = isOpen || !isClosed ? "open" : allow.length > 0 ? "allow" : "none";
  return parse(setNetwork, mode === "none" ? { mode } : { mode, allow }, "body");
}

/** All of it is replaced, as at E2B */
export async function updateNetwork(work: ControlWork): Promise<AnyAnswer> {
  const { allow_internet_access: mayConnect, ...network } = await bodyOf(work, updateRequest);
  const { networks } = work.services.manager;
  await networks.set(forkdId(work.params["id"] ?? ""), policyOf(network, mayConnect), work.caller);
  return { status: 204 };
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null && !(typeof value === "object" && Object.keys(value).length === 0);
}
