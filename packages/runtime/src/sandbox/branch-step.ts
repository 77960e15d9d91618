// Time limits for the steps of a branch: an unresponsive VMM must not block other branches.

import { ForkdError } from "../errors.ts";
import { within } from "../util/within.ts";

/** A source that cannot be saved must resume soon, but a busy host needs more than a second */
export const STEP_WITHIN_MS = 3000;
/** For what opens and makes files while the source runs: the host's disk may be busy */
export const PREPARED_WITHIN_MS = 30_000;

export async function step<V>(name: string, work: Promise<V>, limitMs: number = STEP_WITHIN_MS): Promise<V> {
  return within(work, limitMs, undefined, () => new ForkdError("BRANCH_FAILED", `The step "${name}" did not end within ${limitMs} ms.`));
}
