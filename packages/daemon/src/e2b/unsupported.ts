// Error for E2B features that forkd lacks.

import { ForkdError } from "@forkd/runtime/errors";

export function unsupported(what: string): ForkdError {
  return new ForkdError("UNSUPPORTED", `Cannot do this: forkd does not support ${what}.`);
}
