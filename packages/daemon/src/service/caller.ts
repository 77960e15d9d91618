// Identity, limits and abort signal of a request, as passed to the service layer.

import type { Progress } from "@forkd/runtime/util/progress";
import type { Scope } from "../api/common.ts";

export type Caller = {
  /** "local" for the Unix socket, otherwise the name of the token */
  principal: string;
  /** the project that the work happens in; an operator's list may be across all (EVERY_PROJECT) */
  project: string;
  /** absent: background work of the daemon */
  scope?: Scope | undefined;
  /** id of its session of the dashboard */
  session?: string | undefined;
  /** has the scope admin: may manage the project */
  isAdmin?: boolean | undefined;
  /** has the scope operator: may also use the host's own resources, such as its folders and private networks */
  isOperator?: boolean | undefined;
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

/** Whose things a request may see */
export type Viewer = Pick<Caller, "project">;

/** Caller for background work of the daemon, in the project of what it works on */
export function ownCaller(principal: string, project: string): Caller {
  return { principal, project, maxSandboxes: null, requestId: "", signal: new AbortController().signal };
}

/** Only the user of the Unix socket has the daemon's rights on host files */
export function isLocal({ principal }: Pick<Caller, "principal">): boolean {
  return principal === "local";
}
