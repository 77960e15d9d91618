// Errors as a client gets them: what failed, a stable code, what to do.

import { ForkdError } from "forkd";
import { cut } from "./text.ts";

/** Messages may quote a guest */
const MAX_MESSAGE_BYTES = 4096;

export type Problem = { error: string; code: string; hint: string; details?: Record<string, unknown> };

export function badRequest(message: string, hint: string): ForkdError {
  return new ForkdError("BAD_REQUEST", message, { hint });
}

/** Recognised by shape: errors of the command line that starts a daemon have the same one */
export function problemOf(error: unknown): Problem {
  const { message, code, hint, details } = error as { message?: unknown; code?: unknown; hint?: unknown; details?: unknown };
  if (!(error instanceof Error) || typeof code !== "string" || typeof hint !== "string")
    return { error: cut(String(message ?? error), MAX_MESSAGE_BYTES), code: "INTERNAL", hint: "This is a fault in forkd; report it." };
  const isSmall = details !== undefined && JSON.stringify(details).length <= MAX_MESSAGE_BYTES;
  return {
    error: cut(error.message, MAX_MESSAGE_BYTES),
    code,
    hint,
    ...(isSmall ? { details: details as Record<string, unknown> } : {}),
  };
}
