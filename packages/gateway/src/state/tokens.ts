// Tokens of the cluster: like those of a daemon, but in the state that all gateways share. Only hashes are stored.

import { timingSafeEqual } from "node:crypto";
import { ForkdError } from "@forkd/runtime/errors";
import { notFound } from "@forkd/runtime/util/not-found";
import { hashOf, newSecret, readTokenFile, TOKEN_FILE, type Identity } from "@forkd/daemon/store/tokens";
import { Conflict, type ClusterState, type Removed } from "./state.ts";
import type { Scope } from "@forkd/daemon/api/common";
import type { CreateToken, NewToken, TokenInfo } from "@forkd/daemon/api/daemon";

const KIND = "tokens";
/** Names that daemons and gateways use for themselves */
const OWN_NAMES = new Set(["local", "daemon", "gateway", TOKEN_FILE]);
/** Characters of the hash's own hash that nodes get: derived secrets depend on it, and it does not reveal the token */
const STAMP_LENGTH = 32;

/** `stamp`, `sinceMs`: change with the token's value */
export type Known = { info: TokenInfo; hash: Buffer; stamp: string; sinceMs: number };

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
      scope: "admin",
      max_sandboxes: null,
      created_at_unix: Math.floor(Date.now() / 1000),
      last_used_unix: null,
      source: "file",
    };
    this.#fromFile = knownOf(info, hash, 1);
  }

  list(): TokenInfo[] {
    const all = this.#all().map(({ info }) => ({ ...info, last_used_unix: this.#lastUsed.get(info.name) ?? null }));
    return all.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async create(request: CreateToken): Promise<NewToken> {
    if (OWN_NAMES.has(request.name))
      throw new ForkdError("BAD_NAME", `Cannot make token ${request.name}: the name is taken by the cluster itself.`);
    const info: TokenInfo = {
      name: request.name,
      scope: request.scope,
      max_sandboxes: request.max_sandboxes,
      created_at_unix: Math.floor(Date.now() / 1000),
      last_used_unix: null,
      source: "created",
    };
    return this.#give(info, null, () => new ForkdError("EXISTS", `Cannot make token ${request.name}: there is one already.`));
  }

  /** The old value becomes invalid immediately */
  async rotate(name: string): Promise<NewToken> {
    const { info, version } = this.#get(name);
    return this.#give(info, version, () => busy(name));
  }

  async revoke(name: string): Promise<void> {
    const { version } = this.#get(name);
    try {
      await this.#state.remove(KIND, name, version);
    } catch (error) {
      throw error instanceof Conflict ? busy(name) : error;
    }
  }

  /** Identity of a token. Always hashes and compares with all tokens: the time must not depend on the guess */
  find(presented: string): Identity | null {
    const found = this.#search(presented);
    if (!found) return null;
    const { name, scope, max_sandboxes: maxSandboxes } = found.info;
    this.#lastUsed.set(name, Math.floor(Date.now() / 1000));
    return { name, scope, maxSandboxes };
  }

  knows(presented: string): boolean {
    return this.#search(presented) !== null;
  }

  named(name: string): Known | null {
    if (name === TOKEN_FILE) return this.#fromFile;
    const stored = this.#state.get(KIND, name);
    return stored ? this.#parse(stored.value) : null;
  }

  /** Tokens that were removed, newest first: nodes end what was derived from them */
  get revoked(): Removed[] {
    return this.#state.removed(KIND).toSorted((a, b) => b.removedAtMs - a.removedAtMs);
  }

  #search(presented: string): Known | null {
    const hash = hashOf(presented);
    let found: Known | null = null;
    for (const known of this.#all()) if (timingSafeEqual(known.hash, hash)) found = known;
    return found;
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
        scope: value["scope"] as Scope,
        max_sandboxes: value["max_sandboxes"] as number | null,
        created_at_unix: Number(value["created_at_unix"]),
        last_used_unix: null,
        source: "created",
      };
      known = knownOf(info, Buffer.from(String(value["hash"]), "hex"), Number(value["since_ms"]));
      this.#parsed.set(value, known);
    }
    return known;
  }

  #get(name: string): { info: TokenInfo; version: string } {
    const stored = this.#state.get(KIND, name);
    if (stored) return { info: this.#parse(stored.value).info, version: stored.version };
    if (name === TOKEN_FILE && this.#fromFile)
      throw new ForkdError("BAD_REQUEST", "Cannot change the token of the token file: the file is its only source.", {
        hint: "Write another token into the file and the gateway reads it within seconds.",
      });
    throw notFound("token", name, this.#state.all(KIND).keys());
  }

  async #give(info: TokenInfo, replaces: string | null, taken: () => ForkdError): Promise<NewToken> {
    const token = newSecret();
    const { name, scope, max_sandboxes, created_at_unix } = info;
    const value = { name, scope, max_sandboxes, created_at_unix, hash: hashOf(token).toString("hex"), since_ms: Date.now() };
    try {
      await this.#state.put(KIND, name, value, replaces);
    } catch (error) {
      throw error instanceof Conflict ? taken() : error;
    }
    return { ...info, token };
  }
}

function knownOf(info: TokenInfo, hash: Buffer, sinceMs: number): Known {
  return { info, hash, sinceMs, stamp: hashOf(hash.toString("hex")).toString("hex").slice(0, STAMP_LENGTH) };
}

function busy(name: string): ForkdError {
  return new ForkdError("BUSY", `Cannot change token ${name}: another gateway changes it.`);
}
