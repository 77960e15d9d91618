// Regular expressions of recipes: client patterns that run on guest output inside the daemon.

import { createContext, Script } from "node:vm";
import { ForkdError } from "@forkd/runtime/errors";

/** Time limit: exponential backtracking would block the daemon for all clients */
const WITHIN_MS = 200;

const SCRIPT = new Script("new RegExp(pattern, 'mu').test(text)");

/** `^` and `$` match at line boundaries. Throws RECIPE_INVALID if the pattern takes too long */
export function matches(pattern: string, text: string): boolean {
  try {
    return SCRIPT.runInContext(createContext({ pattern, text }), { timeout: WITHIN_MS }) === true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
    throw new ForkdError("RECIPE_INVALID", `Cannot match ${pattern}: it takes more than ${WITHIN_MS} ms.`, {
      hint: "Write a regular expression without nested repetitions.",
      cause: error,
    });
  }
}
