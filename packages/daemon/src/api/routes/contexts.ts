// Routes of the interpreters of a sandbox.

import * as z from "zod";
import { name } from "../common.ts";
import { contextInfo, createContext } from "../contexts.ts";
import type { Route } from "../route.ts";

const id = name.meta({ description: "Id or name of a sandbox" });
const inSandbox = z.strictObject({ id });
const one = z.strictObject({ id, context: name.meta({ description: "Id of a context" }) });

export const contextRoutes = {
  listContexts: {
    method: "GET",
    path: "/v1/sandboxes/:id/contexts",
    scope: "exec",
    summary: "Its interpreters",
    params: inSandbox,
    responses: { 200: z.array(contextInfo) },
  },
  createContext: {
    method: "POST",
    path: "/v1/sandboxes/:id/contexts",
    scope: "exec",
    summary: "Starts another interpreter, with a state of its own",
    params: inSandbox,
    body: createContext,
    responses: { 201: contextInfo },
  },
  deleteContext: {
    method: "DELETE",
    path: "/v1/sandboxes/:id/contexts/:context",
    scope: "exec",
    summary: "Ends an interpreter and what it runs",
    params: one,
    responses: { 204: "empty" },
  },
  restartContext: {
    method: "POST",
    path: "/v1/sandboxes/:id/contexts/:context/restart",
    scope: "exec",
    summary: "Puts a fresh interpreter in its place, with nothing of its state",
    params: one,
    responses: { 200: contextInfo },
  },
  interruptContext: {
    method: "POST",
    path: "/v1/sandboxes/:id/contexts/:context/interrupt",
    scope: "exec",
    summary: "Interrupts the code that it runs; its state stays",
    params: one,
    responses: { 204: "empty" },
  },
} as const satisfies Record<string, Route>;
