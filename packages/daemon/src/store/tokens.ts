// API tokens: only hashes are stored, and comparisons take constant time.

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { ForkdError } from "@forkd/runtime/errors";
import { readSecretFile } from "../cluster/secret-file.ts";
import type { Scope } from "../api/common.ts";
import type { CreateToken, NewToken, TokenInfo } from "../api/daemon.ts";
import type { Db, Row } from "./db.ts";
import { DEFAULT_PROJECT, EVERY_PROJECT, isOf, shownName, storedName } from "./project-names.ts";
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
 * `name`: the principal, which is the token's name as it is stored, with its project. `project`: the one that the request
 * acts in; an operator may choose another than its own. `via`: `name` is the token that issued the link or access token, and its rights apply; `opens`: the sandbox;
 * `session`: that of the dashboard
 */
export type Identity = {
  name: string;
  project: string;
  scope: Scope;
  maxSandboxes: number | null;
  via?: Via;
  opens?: string;
  session?: string;
};

/** `name`: as it is stored, with its project */
type Known = TokenInfo & { hash: Buffer };
/** What a new token is asked for; its project is decided */
type NewTokenRequest = Pick<CreateToken, "name" | "scope" | "max_sandboxes"> & {
  project?: string | undefined;
  expires_in_secs?: number | null;
};

/** A token of the cluster, as the last gateway's statement says; `stamp` null: it was revoked */
export type ClusterToken = { name: string; stamp: string | null; since: number; max_sandboxes: number | null };

const CLUSTER_KEY = "cluster_token:";

export class Tokens {
  readonly #db: Db;
  readonly #now: () => number;
  /** all tokens by principal, in memory: every request compares with each */
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

  create(request: NewTokenRequest): NewToken {
    if (request.name === LOCAL || request.name === TOKEN_FILE)
      throw new ForkdError("BAD_NAME", `Cannot make token ${request.name}: the name is taken by the daemon itself.`);
    const { project = DEFAULT_PROJECT, expires_in_secs: secs = null } = request;
    const name = storedName(request.name, project);
    if (this.#stored.has(name)) throw new ForkdError("EXISTS", `Cannot make token ${request.name}: there is one already.`);
    const token = newSecret();
    const known: Known = {
      name,
      project,
      scope: request.scope,
      max_sandboxes: request.max_sandboxes,
      created_at_unix: this.#now(),
      last_used_unix: null,
      expires_at_unix: secs === null ? null : this.#now() + secs,
      source: "created",
      hash: hashOf(token),
    };
    this.#write(
      "INSERT INTO tokens (name, project, scope, hash, max_sandboxes, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
      known.name,
      known.project,
      known.scope,
      known.hash,
      known.max_sandboxes,
      known.created_at_unix,
      known.expires_at_unix,
    );
    this.#stored.set(known.name, known);
    return { ...info(known), token };
  }

  /** The old value becomes invalid immediately */
  rotate(name: string, project: string = DEFAULT_PROJECT): NewToken & { principal: string } {
    const known = this.#get(name, project);
    const token = newSecret();
    const hash = hashOf(token);
    this.#write("UPDATE tokens SET hash = ? WHERE name = ?", hash, known.name);
    known.hash = hash;
    return { ...info(known), token, principal: known.name };
  }

  /** Returns the principal that it was */
  revoke(name: string, project: string = DEFAULT_PROJECT): string {
    const known = this.#get(name, project);
    this.#forget(known);
    return known.name;
  }

  /** Removes tokens that have expired; returns their principals */
  prune(): string[] {
    const late = [...this.#stored.values()].filter((known) => this.#isExpired(known));
    for (const known of late) this.#forget(known);
    return late.map(({ name }) => name);
  }

  /** Throws NOT_FOUND; for the token of the token file, BAD_REQUEST */
  get(name: string, project: string = DEFAULT_PROJECT): TokenInfo {
    return info(this.#get(name, project));
  }

  /** Tokens of a project, or of every one */
  list(project: string = EVERY_PROJECT): TokenInfo[] {
    return this.#all()
      .filter((known) => isOf(known.project, project))
      .map(info)
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Identity of a token. Always hashes and compares with all tokens: the time must not depend on the guess */
  find(presented: string): Identity | null {
    const hash = hashOf(presented);
    let found: Known | null = null;
    for (const known of this.#all()) if (timingSafeEqual(known.hash, hash)) found = known;
    if (!found || this.#isExpired(found)) return null;
    this.#touch(found);
    return { name: found.name, project: found.project, scope: found.scope, maxSandboxes: found.max_sandboxes };
  }

  /** Whether the text is a token; unlike find(), does not update its last use */
  knows(presented: string): boolean {
    const hash = hashOf(presented);
    return this.#all().reduce((known, { hash: other }) => timingSafeEqual(other, hash) || known, false);
  }

  /** Hash of the principal's token; null: it has none, or one that has expired */
  hashOf(principal: string): Buffer | null {
    const own = principal === TOKEN_FILE ? this.#fromFile : this.#stored.get(principal);
    if (own) return this.#isExpired(own) ? null : own.hash;
    const known = this.#ofCluster.get(principal);
    if (!known?.stamp) return null;
    // the same object each time: access tokens compare it by identity
    let hash = this.#stamps.get(known);
    if (!hash) this.#stamps.set(known, (hash = Buffer.from(known.stamp)));
    return hash;
  }

  /** Limit of live sandboxes of the principal's token; null: no limit, or no such token */
  maxSandboxesOf(principal: string): number | null {
    return (this.#stored.get(principal) ?? this.#ofCluster.get(principal))?.max_sandboxes ?? null;
  }

  /** Loads the token of the file; returns whether it changed. If the file is invalid, throws and keeps the old token */
  async loadFile(path: string): Promise<boolean> {
    const hash = hashOf(await readTokenFile(path));
    if (this.#fromFile && timingSafeEqual(this.#fromFile.hash, hash)) return false;
    this.#fromFile = {
      name: TOKEN_FILE,
      project: DEFAULT_PROJECT,
      scope: "operator",
      max_sandboxes: null,
      created_at_unix: this.#now(),
      last_used_unix: null,
      expires_at_unix: null,
      source: "file",
      hash,
    };
    return true;
  }

  #all(): Known[] {
    return [...this.#stored.values(), ...(this.#fromFile ? [this.#fromFile] : [])];
  }

  #isExpired({ expires_at_unix: ends }: Known): boolean {
    return ends !== null && ends <= this.#now();
  }

  #forget({ name }: Known): void {
    this.#write("DELETE FROM tokens WHERE name = ?", name);
    this.#stored.delete(name);
  }

  #get(name: string, project: string): Known {
    const known = this.#stored.get(storedName(name, project));
    if (known?.project === project) return known;
    if (name === TOKEN_FILE && project === DEFAULT_PROJECT && this.#fromFile)
      throw new ForkdError("BAD_REQUEST", "Cannot change the token of the token file: the file is its only source.", {
        hint: "Write another token into the file and send the daemon SIGHUP.",
      });
    throw notFound(
      "token",
      name,
      this.list(project).map((other) => other.name),
    );
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
    project: row["project"] as string,
    scope: row["scope"] as Scope,
    max_sandboxes: row["max_sandboxes"] as number | null,
    created_at_unix: row["created_at"] as number,
    last_used_unix: row["last_used"] as number | null,
    expires_at_unix: row["expires_at"] as number | null,
    source: "created",
    hash: Buffer.from(row["hash"] as Uint8Array),
  };
}

function info(known: Known): TokenInfo {
  const { project, scope, max_sandboxes, created_at_unix, last_used_unix, expires_at_unix, source } = known;
  const name = shownName(known.name, project);
  return { name, project, scope, max_sandboxes, created_at_unix, last_used_unix, expires_at_unix, source };
}
