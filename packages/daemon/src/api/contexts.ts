// Interpreters of a sandbox, each with its own state.

import * as z from "zod";
import { bySandbox, env, name, sandboxId } from "./common.ts";
import { language } from "./exec.ts";
import type { Route } from "./route.ts";

const createContext = z
  .strictObject({
    language,
    cwd: z.string().min(1).max(4096).optional().meta({ description: "Where it begins; without it, /" }),
    env: env.optional(),
  })
  .meta({ id: "CreateContext" });

const contextInfo = z
  .strictObject({
    id: z.string().meta({ description: "That of the first one of a language is the language's name. Stays the same in forks" }),
    language,
    cwd: z.string().meta({ description: "Where it began" }),
    state: z.enum(["running", "ended"]).meta({ description: "One that has ended can be restarted" }),
  })
  .meta({ id: "Context" });

const one = z.strictObject({ id: sandboxId, context: name.meta({ description: "Id of a context" }) });

export const contextRoutes = {
  listContexts: {
    method: "GET",
    path: "/v1/sandboxes/:id/contexts",
    scope: "exec",
    summary: "Lists the interpreters of a sandbox",
    params: bySandbox,
    responses: { 200: z.array(contextInfo) },
  },
  createContext: {
    method: "POST",
    path: "/v1/sandboxes/:id/contexts",
    scope: "exec",
    summary: "Starts another interpreter with its own state",
    params: bySandbox,
    body: createContext,
    responses: { 201: contextInfo },
  },
  deleteContext: {
    method: "DELETE",
    path: "/v1/sandboxes/:id/contexts/:context",
    scope: "exec",
    summary: "Ends an interpreter and the code it runs",
    params: one,
    responses: { 204: "empty" },
  },
  restartContext: {
    method: "POST",
    path: "/v1/sandboxes/:id/contexts/:context/restart",
    scope: "exec",
    summary: "Replaces an interpreter by a fresh one without its state",
    params: one,
    responses: { 200: contextInfo },
  },
  interruptContext: {
    method: "POST",
    path: "/v1/sandboxes/:id/contexts/:context/interrupt",
    scope: "exec",
    summary: "Interrupts the running code of an interpreter; its state is kept",
    params: one,
    responses: { 204: "empty" },
  },
} as const satisfies Record<string, Route>;

export type CreateContext = z.infer<typeof createContext>;
export type ContextInfo = z.infer<typeof contextInfo>;
