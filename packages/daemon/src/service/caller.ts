// Identity, limits and abort signal of a request, as passed to the service layer.

import type { Progress } from "@forkd/runtime/util/progress";
import type { Scope } from "../api/common.ts";

export type Caller = {
  /** "local" for the Unix socket, otherwise the name of the token */
  principal: string;
  /** absent: background work of the daemon */
  scope?: Scope | undefined;
  /** id of its session of the dashboard */
  session?: string | undefined;
  /** has the scope admin */
  isAdmin?: boolean | undefined;
  /** may run programs in sandboxes, and may therefore get their access tokens */
  mayExec?: boolean | undefined;
  /** limit of live sandboxes of the token; null: none */
  maxSandboxes: number | null;
  requestId: string;
  /** aborted when the client disconnects; the work can stop */
  signal: AbortSignal;
  progress?: Progress | undefined;
  /** called inside the transaction of a creation, so that a repeated request finds its response after any crash */
  remember?: ((status: number, body: unknown) => void) | undefined;
};

/** Caller for background work of the daemon */
export function ownCaller(principal: string): Caller {
  return { principal, maxSandboxes: null, requestId: "", signal: new AbortController().signal };
}

/** Only the user of the Unix socket has the daemon's rights on host files */
export function isLocal({ principal }: Pick<Caller, "principal">): boolean {
  return principal === "local";
}
