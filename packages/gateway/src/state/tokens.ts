// Tokens of the cluster: like those of a daemon, but in the state that all gateways share. Only hashes are stored.

import { timingSafeEqual } from "node:crypto";
import { ForkdError } from "@forkd/runtime/errors";
import { notFound } from "@forkd/runtime/util/not-found";
import { hashOf, newSecret, readTokenFile, TOKEN_FILE, type Identity } from "@forkd/daemon/store/tokens";
import { DEFAULT_PROJECT, isOf, storedName } from "@forkd/daemon/store/project-names";
import { Conflict, principalOf, tokenKey, type ClusterState, type Removed } from "./state.ts";
import type { Scope } from "@forkd/daemon/api/common";
import type { CreateToken, NewToken, TokenInfo } from "@forkd/daemon/api/daemon";

const KIND = "tokens";
/** Names that daemons and gateways use for themselves */
const OWN_NAMES = new Set(["local", "daemon", "gateway", TOKEN_FILE]);
/** Characters of the hash's own hash that nodes get: derived secrets depend on it, and it does not reveal the token */
const STAMP_LENGTH = 32;

/** `principal`: name with its project, as daemons have it; `stamp`, `sinceMs`: change with the token's value */
export type Known = { info: TokenInfo; principal: string; hash: Buffer; stamp: string; sinceMs: number };
/** One that may be changed: `version` is that of its stored object */
export type Changeable = { info: TokenInfo; key: string; version: string };

export class ClusterTokens {
  readonly #state: ClusterState;
  readonly #lastUsed = new Map<string, number>();
  /** parsed once per version: every request compares with each */
  readonly #parsed = new WeakMap<object, Known>();
  #fromFile: Known | null = null;

  constructor(state: ClusterState) {
    this.#state = state;
  }

  async loadFile(path: string): Promise<void> {
    const hash = hashOf(await readTokenFile(path));
    if (this.#fromFile && timingSafeEqual(this.#fromFile.hash, hash)) return;
    const info: TokenInfo = {
      name: TOKEN_FILE,
      project: DEFAULT_PROJECT,
      scope: "operator",
      max_sandboxes: null,
      created_at_unix: Math.floor(Date.now() / 1000),
      last_used_unix: null,
      expires_at_unix: null,
      source: "file",
    };
    this.#fromFile = knownOf(info, hash, 1);
  }

  /** Tokens of a project, or of every one */
  list(project: string): TokenInfo[] {
    const all = this.#all()
      .filter(({ info }) => isOf(info.project, project))
      .map(({ info, principal }) => ({ ...info, last_used_unix: this.#lastUsed.get(principal) ?? null }));
    return all.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async create(request: CreateToken & { project: string }): Promise<NewToken> {
    if (OWN_NAMES.has(request.name))
      throw new ForkdError("BAD_NAME", `Cannot make token ${request.name}: the name is taken by the cluster itself.`);
    const now = Math.floor(Date.now() / 1000);
    const secs = request.expires_in_secs ?? null;
    const info: TokenInfo = {
      name: request.name,
      project: request.project,
      scope: request.scope,
      max_sandboxes: request.max_sandboxes,
      created_at_unix: now,
      last_used_unix: null,
      expires_at_unix: secs === null ? null : now + secs,
      source: "created",
    };
    return this.#give(info, null, () => new ForkdError("EXISTS", `Cannot make token ${request.name}: there is one already.`));
  }

  /** Throws NOT_FOUND; for the token of the token file, BAD_REQUEST */
  get(name: string, project: string): Changeable {
    const key = tokenKey(storedName(name, project));
    const stored = this.#state.get(KIND, key);
    const known = stored && this.#parse(stored.value);
    if (stored && known?.info.project === project) return { info: known.info, key, version: stored.version };
    if (name === TOKEN_FILE && project === DEFAULT_PROJECT && this.#fromFile)
      throw new ForkdError("BAD_REQUEST", "Cannot change the token of the token file: the file is its only source.", {
        hint: "Write another token into the file and the gateway reads it within seconds.",
      });
    throw notFound(
      "token",
      name,
      this.list(project).map((other) => other.name),
    );
  }

  /** The old value becomes invalid immediately */
  async rotate({ info, version }: Changeable): Promise<NewToken> {
    return this.#give(info, version, () => busy(info.name));
  }

  async revoke({ info, key, version }: Changeable): Promise<void> {
    try {
      await this.#state.remove(KIND, key, version);
    } catch (error) {
      throw error instanceof Conflict ? busy(info.name) : error;
    }
  }

  /** Identity of a token. Always hashes and compares with all tokens: the time must not depend on the guess */
  find(presented: string): Identity | null {
    const found = this.#search(presented);
    if (!found) return null;
    const { project, scope, max_sandboxes: maxSandboxes } = found.info;
    this.#lastUsed.set(found.principal, Math.floor(Date.now() / 1000));
    return { name: found.principal, project, scope, maxSandboxes };
  }

  knows(presented: string): boolean {
    return this.#search(presented) !== null;
  }

  ofPrincipal(principal: string): Known | null {
    if (principal === TOKEN_FILE) return this.#fromFile;
    const stored = this.#state.get(KIND, tokenKey(principal));
    return stored ? this.#parse(stored.value) : null;
  }

  /** Changes with the value of the principal's token; null: it has none, or one that has expired */
  stampOf(principal: string): string | null {
    const known = this.ofPrincipal(principal);
    return known && !isExpired(known) ? known.stamp : null;
  }

  /** The limit of the token's own sandboxes */
  maxSandboxesOf(principal: string): number | null {
    return this.ofPrincipal(principal)?.info.max_sandboxes ?? null;
  }

  /** Principals whose tokens were removed, newest first: nodes end what was derived from them */
  get revoked(): Removed[] {
    const removed = this.#state.removed(KIND).map(({ name, removedAtMs }) => ({ name: principalOf(name), removedAtMs }));
    return removed.toSorted((a, b) => b.removedAtMs - a.removedAtMs);
  }

  #search(presented: string): Known | null {
    const hash = hashOf(presented);
    let found: Known | null = null;
    for (const known of this.#all()) if (timingSafeEqual(known.hash, hash)) found = known;
    return found && !isExpired(found) ? found : null;
  }

  #all(): Known[] {
    const stored = [...this.#state.all(KIND).values()].map(({ value }) => this.#parse(value));
    return this.#fromFile ? [...stored, this.#fromFile] : stored;
  }

  #parse(value: Record<string, unknown>): Known {
    let known = this.#parsed.get(value);
    if (!known) {
      const info: TokenInfo = {
        name: String(value["name"]),
        project: typeof value["project"] === "string" ? value["project"] : DEFAULT_PROJECT,
        scope: value["scope"] as Scope,
        max_sandboxes: value["max_sandboxes"] as number | null,
        created_at_unix: Number(value["created_at_unix"]),
        last_used_unix: null,
        expires_at_unix: typeof value["expires_at_unix"] === "number" ? value["expires_at_unix"] : null,
        source: "created",
      };
      known = knownOf(info, Buffer.from(String(value["hash"]), "hex"), Number(value["since_ms"]));
      this.#parsed.set(value, known);
    }
    return known;
  }

  async #give(info: TokenInfo, replaces: string | null, taken: () => ForkdError): Promise<NewToken> {
    const token = newSecret();
    const { name, project, scope, max_sandboxes, created_at_unix, expires_at_unix } = info;
    const value = {
      name,
      project,
      scope,
      max_sandboxes,
      created_at_unix,
      expires_at_unix,
      hash: hashOf(token).toString("hex"),
      since_ms: Date.now(),
    };
    try {
      await this.#state.put(KIND, tokenKey(storedName(name, project)), value, replaces);
    } catch (error) {
      throw error instanceof Conflict ? taken() : error;
    }
    return { ...info, token };
  }
}

function knownOf(info: TokenInfo, hash: Buffer, sinceMs: number): Known {
  return {
    info,
    principal: storedName(info.name, info.project),
    hash,
    sinceMs,
    stamp: hashOf(hash.toString("hex")).toString("hex").slice(0, STAMP_LENGTH),
  };
}

function isExpired({ info: { expires_at_unix: at } }: Known): boolean {
  return at !== null && at * 1000 <= Date.now();
}

function busy(name: string): ForkdError {
  return new ForkdError("BUSY", `Cannot change token ${name}: another gateway changes it.`);
}
