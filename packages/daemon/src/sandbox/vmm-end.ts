// When a VMM ends, its channels close before its end is known; the end is what has to be told.

import { ForkdError } from "../errors.ts";
import { within } from "../guest/connection.ts";

const END_WITHIN_MS = 2000;

/** The outcome of the work, or of the VMM's end, which also explains a lost agent */
export async function unlessEnded<V>(work: Promise<V>, end: Promise<never>): Promise<V> {
  try {
    return await Promise.race([work, end]);
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code !== "AGENT_LOST") throw error;
    return within(end, END_WITHIN_MS, undefined, () => error);
  }
}
