// Errors for a VMM that ends: its channels close before its exit status is known, and the exit is the error to report.

import { ForkdError } from "../errors.ts";
import { within } from "../util/within.ts";
import type { VmExit } from "../vmm/driver.ts";

/** A busy host takes seconds to end a process and to report it */
const END_WITHIN_MS = 10_000;

/** Lines with which a guest kernel, or the agent, begins to report why it ends */
const CAUSE = /^.*?((?:BUG:|Oops:|general protection fault|Kernel panic|forkd-agent: FATAL:).*)$/m;
const MAX_CAUSE = 200;

/** Short description of a VMM's exit */
export function endingOf({
  code,
  signal,
  isOutOfSpace,
  failure,
  console,
}: Pick<VmExit, "code" | "signal" | "isOutOfSpace" | "failure" | "console">): string {
  if (failure !== null) {
    // control characters of a guest must not reach a terminal
    const cause = CAUSE.exec(console)?.[1]
      ?.replaceAll(/\p{Cc}/gu, "")
      .trim();
    return cause === undefined ? failure : `${failure}: ${cause.slice(0, MAX_CAUSE)}`;
  }
  if (isOutOfSpace) return "the disk of FORKD_HOME is full, and had no page for its memory";
  if (signal === "SIGBUS")
    return "SIGBUS: a page of its memory could not be read or written; a quota may be used up, or the disk is broken";
  return signal ?? (code === 0 ? "its guest powered off or restarted" : `exit code ${code}`);
}

/** The log of a VMM and the end of its guest's console, as the lines after an error's message; empty if there is neither */
export function outputOf({ log, console }: Pick<VmExit, "log" | "console">): string {
  const output = [log, console].filter((text) => text.trim() !== "");
  return output.length === 0 ? "" : `\n${output.join("\n")}`;
}

/** Result of the work, or the error of the VMM's exit, which also explains a lost agent connection */
export async function unlessEnded<V>(work: Promise<V>, end: Promise<never>): Promise<V> {
  try {
    return await Promise.race([work, end]);
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code !== "AGENT_LOST") throw error;
    return within(end, END_WITHIN_MS, undefined, () => error);
  }
}
