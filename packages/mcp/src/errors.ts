// Errors as clients get them: what failed, a stable code, what to do.

import { ForkdError } from "forkd";
import { cut } from "./text.ts";

/** Limit of a message, which may quote a guest */
const MAX_MESSAGE_BYTES = 4096;

/** Tools that replace the API routes in the daemon's hints. Fields have the same names here */
const TOOLS: Record<string, string> = {
  "GET /v1/snapshots": "list_snapshots",
  "GET /v1/sandboxes": "list_sandboxes",
  "GET /v1/images": "list_images",
  "GET /v1/recipes": "list_recipes",
  "GET /v1/sandboxes/ID/processes": "list_processes",
  "GET /v1/sandboxes/ID/ports": "list_ports",
  "PUT /v1/sandboxes/ID/files": "write_file",
};

export type Problem = { error: string; code: string; hint: string; details?: Record<string, unknown> };

export function badRequest(message: string, hint: string): ForkdError {
  return new ForkdError("BAD_REQUEST", message, { hint });
}

/** Recognised by shape: errors of the command line that starts a daemon have the same shape */
export function problemOf(error: unknown): Problem {
  const { message, code, hint, details } = error as { message?: unknown; code?: unknown; hint?: unknown; details?: unknown };
  if (!(error instanceof Error) || typeof code !== "string" || typeof hint !== "string")
    return { error: cut(String(message ?? error), MAX_MESSAGE_BYTES), code: "INTERNAL", hint: "This is a fault in forkd; report it." };
  const isSmall = details !== undefined && JSON.stringify(details).length <= MAX_MESSAGE_BYTES;
  return {
    error: cut(error.message, MAX_MESSAGE_BYTES),
    code,
    hint: hint.replaceAll(/`([^`]+)`/g, (whole, name: string) => TOOLS[name] ?? whole),
    ...(isSmall ? { details: details as Record<string, unknown> } : {}),
  };
}
