// What of E2B's API forkd does not have.

import { ForkdError } from "../errors.ts";

export function unsupported(what: string): ForkdError {
  return new ForkdError("UNSUPPORTED", `Cannot do this: forkd has nothing for ${what}.`);
}
