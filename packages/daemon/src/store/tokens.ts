// API tokens: only hashes are stored, and comparisons take constant time.

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { ForkdError } from "@forkd/runtime/errors";
import { readSecretFile } from "../cluster/secret-file.ts";
import type { Scope } from "../api/common.ts";
import type { CreateToken, NewToken, TokenInfo } from "../api/daemon.ts";
import type { Db, Row } from "./db.ts";
import { notFound } from "@forkd/runtime/util/not-found";

const PREFIX = "fkd_";
/** Token in the form that E2B's SDKs require of an API key */
const E2B_FORM = /^e2b_([0-9a-f]{64})$/;
const TOKEN_BYTES = 32;
const MIN_BYTES = 16;
const LAST_USED_STEP_SECS = 60;
/** Principal names of the Unix socket and of the token file */
const LOCAL = "local";
export const TOKEN_FILE = "token-file";

/** Access method of a client without an API token */
export type Via = "preview" | "envd" | "signature" | "traffic" | "public" | "upload" | "ui";

/**
 * `via`: `name` is the token that issued the link or access token, and its rights apply; `opens`: the sandbox;
 * `session`: that of the dashboard
 */
export type Identity = { name: string; scope: Scope; maxSandboxes: number | null; via?: Via; opens?: string; session?: string };

type Known = TokenInfo & { hash: Buffer };

/** A token of the cluster, as the last gateway's statement says; `stamp` null: it was revoked */
export type ClusterToken = { name: string; stamp: string | null; since: number; max_sandboxes: number | null };

const CLUSTER_KEY = "cluster_token:";

export class Tokens {
  readonly #db: Db;
  readonly #now: () => number;
  /** all tokens by name, in memory: every request compares with each */
  readonly #stored = new Map<string, Known>();
  #fromFile: Known | null = null;
  /** tokens of the cluster, by name: their access tokens and preview links end with them */
  readonly #ofCluster = new Map<string, ClusterToken>();
  readonly #stamps = new WeakMap<ClusterToken, Buffer>();

  constructor(db: Db, opts: { nowMs?: () => number } = {}) {
    this.#db = db;
    const nowMs = opts.nowMs ?? Date.now;
    this.#now = () => Math.floor(nowMs() / 1000);
    for (const row of db.all("SELECT * FROM tokens ORDER BY name")) {
      const known = fromRow(row);
      this.#stored.set(known.name, known);
    }
    for (const row of db.all("SELECT value FROM meta WHERE substr(key, 1, ?) = ?", CLUSTER_KEY.length, CLUSTER_KEY)) {
      const known = JSON.parse(row["value"] as string) as ClusterToken;
      this.#ofCluster.set(known.name, known);
    }
  }

  /** Records a token of the cluster; returns whether an earlier value of it ended. Statements may arrive in any order */
  noteOfCluster(token: ClusterToken): boolean {
    const known = this.#ofCluster.get(token.name);
    if (known && known.since >= token.since) return false;
    this.#write("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", `${CLUSTER_KEY}${token.name}`, JSON.stringify(token));
    this.#ofCluster.set(token.name, token);
    return known !== undefined;
  }

  create(request: CreateToken): NewToken {
    if (request.name === LOCAL || request.name === TOKEN_FILE)
      throw new ForkdError("BAD_NAME", `Cannot make token ${request.name}: the name is taken by the daemon itself.`);
    if (this.#stored.has(request.name)) throw new ForkdError("EXISTS", `Cannot make token ${request.name}: there is one already.`);
    const token = newSecret();
    const known: Known = {
      name: request.name,
      scope: request.scope,
      max_sandboxes: request.max_sandboxes,
      created_at_unix: this.#now(),
      last_used_unix: null,
      source: "created",
      hash: hashOf(token),
    };
    this.#write(
      "INSERT INTO tokens (name, scope, hash, max_sandboxes, created_at) VALUES (?, ?, ?, ?, ?)",
      known.name,
      known.scope,
      known.hash,
      known.max_sandboxes,
      known.created_at_unix,
    );
    this.#stored.set(known.name, known);
    return { ...info(known), token };
  }

  /** The old value becomes invalid immediately */
  rotate(name: string): NewToken {
    const known = this.#get(name);
    const token = newSecret();
    const hash = hashOf(token);
    this.#write("UPDATE tokens SET hash = ? WHERE name = ?", hash, name);
    known.hash = hash;
    return { ...info(known), token };
  }

  revoke(name: string): void {
    this.#get(name);
    this.#write("DELETE FROM tokens WHERE name = ?", name);
    this.#stored.delete(name);
  }

  list(): TokenInfo[] {
    return this.#all()
      .map(info)
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Identity of a token. Always hashes and compares with all tokens: the time must not depend on the guess */
  find(presented: string): Identity | null {
    const hash = hashOf(presented);
    let found: Known | null = null;
    for (const known of this.#all()) if (timingSafeEqual(known.hash, hash)) found = known;
    if (!found) return null;
    this.#touch(found);
    return { name: found.name, scope: found.scope, maxSandboxes: found.max_sandboxes };
  }

  /** Whether the text is a token; unlike find(), does not update its last use */
  knows(presented: string): boolean {
    const hash = hashOf(presented);
    return this.#all().reduce((known, { hash: other }) => timingSafeEqual(other, hash) || known, false);
  }

  /** Hash of the token with this name; null: no such token */
  hashOf(name: string): Buffer | null {
    const own = name === TOKEN_FILE ? this.#fromFile : this.#stored.get(name);
    if (own) return own.hash;
    const known = this.#ofCluster.get(name);
    if (!known?.stamp) return null;
    // the same object each time: access tokens compare it by identity
    let hash = this.#stamps.get(known);
    if (!hash) this.#stamps.set(known, (hash = Buffer.from(known.stamp)));
    return hash;
  }

  /** Limit of live sandboxes of the token with this name; null: no limit, or no such token */
  maxSandboxesOf(name: string): number | null {
    return (this.#stored.get(name) ?? this.#ofCluster.get(name))?.max_sandboxes ?? null;
  }

  /** Loads the token of the file; returns whether it changed. If the file is invalid, throws and keeps the old token */
  async loadFile(path: string): Promise<boolean> {
    const hash = hashOf(await readTokenFile(path));
    if (this.#fromFile && timingSafeEqual(this.#fromFile.hash, hash)) return false;
    this.#fromFile = {
      name: TOKEN_FILE,
      scope: "admin",
      max_sandboxes: null,
      created_at_unix: this.#now(),
      last_used_unix: null,
      source: "file",
      hash,
    };
    return true;
  }

  #all(): Known[] {
    return [...this.#stored.values(), ...(this.#fromFile ? [this.#fromFile] : [])];
  }

  #get(name: string): Known {
    const known = this.#stored.get(name);
    if (known) return known;
    if (name === TOKEN_FILE && this.#fromFile)
      throw new ForkdError("BAD_REQUEST", "Cannot change the token of the token file: the file is its only source.", {
        hint: "Write another token into the file and send the daemon SIGHUP.",
      });
    throw notFound("token", name, this.#stored.keys());
  }

  /** Durable: a power failure must not restore a revoked token */
  #write(sql: string, ...values: (string | number | Uint8Array | null)[]): void {
    this.#db.durably(() => this.#db.run(sql, ...values));
  }

  #touch(known: Known): void {
    const now = this.#now();
    if (known.last_used_unix !== null && now - known.last_used_unix < LAST_USED_STEP_SECS) return;
    known.last_used_unix = now;
    if (known.source === "created") this.#db.run("UPDATE tokens SET last_used = ? WHERE name = ?", now, known.name);
  }
}

export async function readTokenFile(path: string): Promise<string> {
  const text = await readSecretFile(path, "token_file");
  const token = text.trim();
  const why = weakness(token);
  if (why) throw new ForkdError("WEAK_TOKEN", `Cannot use the token in ${path}: ${why}.`);
  return token;
}

function weakness(token: string): string | null {
  if (/^(REPLACE_ME|CHANGE_ME)/i.test(token)) return "it is a placeholder";
  if (/\s/.test(token)) return "there is white space in it";
  if (!/^[\x21-\x7e]*$/.test(token)) return "a header cannot carry it";
  if (Buffer.byteLength(token) < MIN_BYTES) return `it has less than ${MIN_BYTES} bytes`;
  return null;
}

export function newSecret(): string {
  return PREFIX + randomBytes(TOKEN_BYTES).toString("hex");
}

export function hashOf(token: string): Buffer {
  return createHash("sha256")
    .update(token.replace(E2B_FORM, `${PREFIX}$1`))
    .digest();
}

function fromRow(row: Row): Known {
  return {
    name: row["name"] as string,
    scope: row["scope"] as Scope,
    max_sandboxes: row["max_sandboxes"] as number | null,
    created_at_unix: row["created_at"] as number,
    last_used_unix: row["last_used"] as number | null,
    source: "created",
    hash: Buffer.from(row["hash"] as Uint8Array),
  };
}

function info(known: Known): TokenInfo {
  const { name, scope, max_sandboxes, created_at_unix, last_used_unix, source } = known;
  return { name, scope, max_sandboxes, created_at_unix, last_used_unix, source };
}
