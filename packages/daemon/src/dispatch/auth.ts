// Authentication and scopes.

import { ForkdError } from "@forkd/runtime/errors";
import { notFound } from "@forkd/runtime/util/not-found";
import type { Scope } from "../api/common.ts";
import type { Identity, Tokens } from "../store/tokens.ts";
import { DEFAULT_PROJECT, EVERY_PROJECT } from "../store/project-names.ts";
import type { AuthFailures } from "./auth-failures.ts";

const LOCAL: Identity = Object.freeze({ name: "local", project: DEFAULT_PROJECT, scope: "operator", maxSandboxes: null });
const RANK: Record<Scope, number> = { read: 0, exec: 1, admin: 2, operator: 3 };
/** Names the project that an operator's request acts in */
export const PROJECT_HEADER = "x-forkd-project";

/** `unix`: needs no token, because the mode of the socket file controls access */
export type TransportKind = "unix" | "tcp";

/** `place`: key of a separate failure counter; `stated`: identity that a gateway of the cluster vouches for */
export type Credentials = {
  kind: TransportKind;
  remote: string;
  token: string | undefined;
  place?: string | undefined;
  stated?: Identity | null;
};

/** Bearer token of an Authorization header */
export function bearerOf(authorization: string | undefined): string | undefined {
  return /^bearer +(\S+) *$/i.exec(authorization ?? "")?.[1];
}

export function authenticate(given: Credentials, against: { tokens: Pick<Tokens, "find">; failures: AuthFailures }): Identity {
  if (given.kind === "unix") return LOCAL;
  if (given.stated) return given.stated;
  refuseBlocked(given.remote, against.failures, given.place);
  if (given.token === undefined) throw new ForkdError("UNAUTHORIZED", "Cannot serve this: a bearer token is required.");
  const identity = against.tokens.find(given.token);
  if (identity) return identity;
  against.failures.add(given.remote, given.place);
  throw new ForkdError("UNAUTHORIZED", "Cannot serve this: the token is not known.");
}

/** Throws RATE_LIMITED if too many wrong tokens came from the address */
export function refuseBlocked(remote: string, failures: AuthFailures, place?: string): void {
  const blockedMs = failures.blockedMs(remote, place);
  if (blockedMs === 0) return;
  throw new ForkdError("RATE_LIMITED", `Cannot check the token: too many wrong tokens were sent from ${remote}.`, {
    details: { retry_after_secs: Math.ceil(blockedMs / 1000) },
  });
}

export function allows({ scope }: Identity, needed: Scope): boolean {
  return allowsScope(scope, needed);
}

export function allowsScope(scope: Scope, needed: Scope): boolean {
  return RANK[scope] >= RANK[needed];
}

export function authorize(identity: Identity, needed: Scope): void {
  if (allows(identity, needed)) return;
  throw new ForkdError("FORBIDDEN", `Cannot do this: it needs the scope ${needed}, and token ${identity.name} has ${identity.scope}.`);
}

/** A caller gives no token more rights than it has itself: by making it, or by getting the new value of an existing one */
export function checkGrant(own: Scope | undefined, token: { name: string; scope: Scope }): void {
  if (allowsScope(own ?? "read", token.scope)) return;
  throw new ForkdError("FORBIDDEN", `Cannot change token ${token.name}: it has the scope ${token.scope}, the caller ${own ?? "read"}.`);
}

/**
 * The identity in the project that the header names. Only operators may name another project than their own: for all others
 * it does not exist. An access token or a link is for one sandbox, so the header has no effect on it
 */
export function inProject(
  identity: Identity,
  wanted: string | string[] | undefined,
  { projects, acrossProjects }: { projects: { get: (name: string) => { name: string } }; acrossProjects: boolean },
): Identity {
  if (wanted === undefined || (identity.via !== undefined && identity.via !== "ui")) return identity;
  const project = String(wanted);
  if (project === identity.project) return identity;
  if (!allows(identity, "operator")) throw notFound("project", project, []);
  if (project !== EVERY_PROJECT) return { ...identity, project: projects.get(project).name };
  if (acrossProjects) return { ...identity, project };
  throw new ForkdError("BAD_REQUEST", "Cannot do this in every project: `X-Forkd-Project: *` is for lists.", {
    hint: "Name one project.",
  });
}
