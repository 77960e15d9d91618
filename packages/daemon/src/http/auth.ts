// Who asks, and whether they may.

import { ForkdError } from "../errors.ts";
import type { Scope } from "../api/daemon.ts";
import type { Identity, Tokens } from "../store/tokens.ts";
import type { AuthFailures } from "./auth-failures.ts";

const LOCAL: Identity = Object.freeze({ name: "local", scope: "admin", maxSandboxes: null });
const RANK: Record<Scope, number> = { read: 0, exec: 1, admin: 2 };

/** `unix`: the file system has already asked who it is */
export type TransportKind = "unix" | "tcp";

export type Credentials = { kind: TransportKind; remote: string; token: string | undefined };

/** The token in a header Authorization */
export function bearerOf(authorization: string | undefined): string | undefined {
  return /^bearer +(\S+) *$/i.exec(authorization ?? "")?.[1];
}

export function authenticate(given: Credentials, against: { tokens: Tokens; failures: AuthFailures }): Identity {
  if (given.kind === "unix") return LOCAL;
  const blockedMs = against.failures.blockedMs(given.remote);
  if (blockedMs > 0) {
    const seconds = Math.ceil(blockedMs / 1000);
    throw new ForkdError("RATE_LIMITED", `Cannot check the token: too many wrong ones came from ${given.remote}.`, {
      details: { retry_after_secs: seconds },
    });
  }
  if (given.token === undefined) throw new ForkdError("UNAUTHORIZED", "Cannot serve this: a bearer token is needed and there is none.");
  const identity = against.tokens.find(given.token);
  if (identity) return identity;
  against.failures.add(given.remote);
  throw new ForkdError("UNAUTHORIZED", "Cannot serve this: the token is not known.");
}

export function authorize(identity: Identity, needed: Scope): void {
  if (RANK[identity.scope] >= RANK[needed]) return;
  throw new ForkdError("FORBIDDEN", `Cannot do this: it needs the scope ${needed}, and token ${identity.name} has ${identity.scope}.`);
}
