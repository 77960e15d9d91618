// What a sandbox may connect to, and what it did.

import * as z from "zod";
import { ruleProblem } from "../net/policy.ts";

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

const limit = z.int().min(0).max(Number.MAX_SAFE_INTEGER).nullable();

export const setNetwork = z
  .strictObject({
    mode,
    allow: z.array(rule).max(MAX_RULES).optional(),
    egress_limit_bytes: limit.optional().meta({ description: "What may leave the sandbox in all; null: any number of bytes" }),
  })
  .refine((request) => request.mode !== "none" || !request.allow?.length, { path: ["allow"], message: "has no effect with the mode none" })
  .meta({ id: "SetNetwork" });

export const networkPolicy = z.strictObject({ mode, allow: z.array(z.string()), egress_limit_bytes: limit }).meta({ id: "NetworkPolicy" });

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

export const networkInfo = z
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

export type SetNetwork = z.infer<typeof setNetwork>;
export type NetworkPolicyInfo = z.infer<typeof networkPolicy>;
export type NetworkInfo = z.infer<typeof networkInfo>;
