// What a sandbox may connect to, and what it did.

import * as z from "zod";
import { denyProblem, ruleProblem } from "@forkd/runtime/egress/policy";
import { bySandbox } from "./common.ts";
import type { Route } from "./route.ts";

const MAX_RULES = 256;
const MAX_RULE = 300;

const mode = z.enum(["none", "allow", "open"]).meta({
  id: "NetworkMode",
  description: "none: nothing; allow: what the rules say; open: any public address, and what the rules say",
});

const rule = z
  .string()
  .max(MAX_RULE)
  .superRefine((text, context) => {
    const message = ruleProblem(text);
    if (message !== undefined) context.addIssue({ code: "custom", message });
  })
  .meta({ id: "NetworkRule", description: "example.org, *.example.org:443, 10.1.2.0/24:5432, [fd00::1]:80,8000-8100" });

const denied = z
  .string()
  .max(MAX_RULE)
  .superRefine((text, context) => {
    const message = denyProblem(text);
    if (message !== undefined) context.addIssue({ code: "custom", message });
  })
  .meta({ id: "NetworkDenial", description: "203.0.113.7, 203.0.113.0/24, 203.0.113.0/24:25, [2001:db8::1]:80" });

const limit = z.int().min(0).max(Number.MAX_SAFE_INTEGER).nullable();

export const setNetwork = z
  .strictObject({
    mode,
    allow: z
      .array(rule)
      .max(MAX_RULES)
      .optional()
      .meta({ description: "Rules such as `example.org`, `*.example.org:443`, `10.1.2.0/24:5432`, `[fd00::1]:80,8000-8100`" }),
    deny: z
      .array(denied)
      .max(MAX_RULES)
      .optional()
      .meta({ description: "Addresses that an open network does not lead to, unless a rule of allow does; only with the mode open" }),
    egress_limit_bytes: limit.optional().meta({ description: "Bytes that may leave the sandbox in total; null: no limit" }),
  })
  .refine((request) => request.mode !== "none" || !request.allow?.length, { path: ["allow"], message: "has no effect with the mode none" })
  .refine((request) => request.mode === "open" || !request.deny?.length, {
    path: ["deny"],
    message: "has an effect with the mode open only",
  })
  .meta({ id: "SetNetwork" });

export const networkPolicy = z
  .strictObject({
    mode,
    allow: z.array(z.string()),
    deny: z.array(z.string()).optional().meta({ description: "Only where something is denied" }),
    egress_limit_bytes: limit,
  })
  .meta({ id: "NetworkPolicy" });

const connection = z
  .strictObject({
    time: z.string(),
    name: z.string().nullable(),
    ip: z.string().nullable().meta({ description: "null: the name was refused, so there was no connection" }),
    port: z.int().nullable(),
    decision: z.enum(["allowed", "refused"]),
    reason: z.string(),
    error: z.string().nullable().meta({ description: "Why it ended, if not in order" }),
    bytes_up: z.int(),
    bytes_down: z.int(),
    ms: z.number(),
    open: z.boolean(),
  })
  .meta({ id: "NetworkConnection" });

const networkInfo = z
  .strictObject({
    ...networkPolicy.shape,
    egress_used_bytes: z.int().meta({ description: "What counts against the limit" }),
    connections_open: z.int(),
    connections_total: z.int(),
    connections_refused: z.int(),
    bytes_up: z.int(),
    bytes_down: z.int(),
    recent: z.array(connection).meta({ description: "The last 100, newest first; counted since the sandbox was made or adopted" }),
  })
  .meta({ id: "Network" });

export const networkRoutes = {
  getNetwork: {
    method: "GET",
    path: "/v1/sandboxes/:id/network",
    scope: "read",
    summary: "Network policy of a sandbox and its last connections",
    params: bySandbox,
    responses: { 200: networkInfo },
  },
  setNetwork: {
    method: "PUT",
    path: "/v1/sandboxes/:id/network",
    scope: "exec",
    summary: "Replaces the network policy of a sandbox at once; connections that it does not allow are closed",
    params: bySandbox,
    body: setNetwork,
    responses: { 200: networkInfo },
  },
} as const satisfies Record<string, Route>;

export type SetNetwork = z.infer<typeof setNetwork>;
export type NetworkPolicyInfo = z.infer<typeof networkPolicy>;
/** A connection as the API and the audit log describe it */
export type ConnectionFacts = Omit<NetworkInfo["recent"][number], "time" | "open">;
export type NetworkInfo = z.infer<typeof networkInfo>;
