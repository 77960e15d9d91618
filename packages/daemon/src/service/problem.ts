// Conversion of errors to the API's Problem.

import type { Problem } from "../api/common.ts";
import { ERROR_CODES, ForkdError } from "@forkd/runtime/errors";

/** Errors other than ForkdError become INTERNAL without details, which only the log contains */
export function problemOf(error: unknown, requestId: string): Problem {
  if (!(error instanceof ForkdError)) {
    return { error: "Something went wrong inside forkd.", code: "INTERNAL", hint: ERROR_CODES.INTERNAL.hint, request_id: requestId };
  }
  const { message, code, hint, details } = error;
  return { error: message, code, hint, request_id: requestId, ...(details ? { details } : {}) };
}
