// An error as the API shows it.

import type { Problem } from "../api/common.ts";
import { ERROR_CODES, ForkdError } from "../errors.ts";

/** What is not ours is a fault of ours: it is told without its inside, which belongs in the log */
export function problemOf(error: unknown, requestId: string): Problem {
  if (!(error instanceof ForkdError)) {
    return { error: "Something went wrong inside forkd.", code: "INTERNAL", hint: ERROR_CODES.INTERNAL.hint, request_id: requestId };
  }
  const { message, code, hint, details } = error;
  return { error: message, code, hint, request_id: requestId, ...(details ? { details } : {}) };
}
