// Who asks, and what goes with the request on its way down.

import type { Progress } from "../util/progress.ts";

export type Caller = {
  /** "local" for the Unix socket, else the token's name */
  principal: string;
  /** may do what is for admins */
  isAdmin?: boolean | undefined;
  /** the token's own limit of live sandboxes */
  maxSandboxes: number | null;
  requestId: string;
  /** aborted when the client went away; work that nobody will get an answer for need not go on */
  signal: AbortSignal;
  progress?: Progress | undefined;
  /** called inside the transaction that makes a creation final, so that a repeated request finds its answer after any crash */
  remember?: ((status: number, body: unknown) => void) | undefined;
};

/** The daemon itself, for what nobody waits for */
export function ownCaller(principal: string): Caller {
  return { principal, maxSandboxes: null, requestId: "", signal: new AbortController().signal };
}

/** The only one whose files are the daemon's: the user of the Unix socket */
export function isLocal({ principal }: Pick<Caller, "principal">): boolean {
  return principal === "local";
}
