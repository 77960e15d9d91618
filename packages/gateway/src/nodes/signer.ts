// Statements about requests that nodes trust: who asks, and which tokens were revoked.

import { signClaim, type Claim } from "@forkd/daemon/cluster/identity";
import { DEFAULT_PROJECT, EVERY_PROJECT } from "@forkd/daemon/store/project-names";
import type { Identity } from "@forkd/daemon/store/tokens";
import type { ClusterTokens } from "../state/tokens.ts";
import type { Uses } from "./uses.ts";

/** Revoked tokens named in one statement, which is a header */
const MAX_REVOKED = 32;

/** `identity` null: the request's own credentials count, such as an access token */
export type Asker = { identity: Identity | null; remote: string };

/** The gateway itself, for its own requests to nodes */
export const GATEWAY: Asker = gatewayIn(DEFAULT_PROJECT);
/** The same, for lists of all projects */
export const EVERYWHERE: Asker = gatewayIn(EVERY_PROJECT);

export function gatewayIn(project: string): Asker {
  return { identity: { name: "gateway", project, scope: "operator", maxSandboxes: null }, remote: "gateway" };
}

export class Signer {
  keys: readonly Buffer[];
  readonly #tokens: ClusterTokens;
  readonly #uses: Uses;
  /** per node, the revocations that it has got */
  readonly #told = new WeakMap<object, Set<string>>();

  constructor(keys: readonly Buffer[], parts: { tokens: ClusterTokens; uses: Uses }) {
    this.keys = keys;
    this.#tokens = parts.tokens;
    this.#uses = parts.uses;
  }

  sign({ identity, remote }: Asker, asked: { method: string; url: string }, node: object): string {
    const known = identity && this.#tokens.ofPrincipal(identity.name);
    const claim: Claim = {
      name: identity?.name ?? null,
      scope: identity?.scope ?? "read",
      project: identity?.project ?? null,
      max_sandboxes: identity?.maxSandboxes ?? null,
      stamp: known?.stamp ?? null,
      since: known?.sinceMs ?? 0,
      remote: remote.slice(0, 64),
      revoked: this.#untold(node),
      elsewhere: identity && this.#uses.elsewhere(identity.project, node),
    };
    return signClaim(claim, asked, this.keys);
  }

  /** The node has read a statement with these revocations */
  heard(node: object, revoked: Claim["revoked"]): void {
    const told = this.#told.get(node) ?? new Set();
    for (const [name, at] of revoked) told.add(`${name} ${at}`);
    this.#told.set(node, told);
  }

  #untold(node: object): Claim["revoked"] {
    const told = this.#told.get(node);
    const all = this.#tokens.revoked.map(({ name, removedAtMs }): [string, number] => [name, removedAtMs]);
    return all.filter(([name, at]) => !told?.has(`${name} ${at}`)).slice(0, MAX_REVOKED);
  }

  /** Revocations that the next statement to the node carries */
  pending(node: object): Claim["revoked"] {
    return this.#untold(node);
  }
}
