// Access tokens of E2B's protocol, per sandbox. Derived by HMAC: only the key and salts of rotated tokens are stored.

import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { secretOf } from "./secret.ts";
import type { Db } from "./db.ts";
import type { Access, MovedAccess } from "./moved-access.ts";
import type { Tokens } from "./tokens.ts";

/** `envd`: processes and files; `traffic`: ports of the guest; `upload`: one template file */
export type AccessKind = "envd" | "traffic" | "upload";

/** Cache limit; the cache is cleared when it is reached */
const MAX_KEPT = 20_000;
const NO_MAKER = Buffer.alloc(0);
const SALT_BYTES = 16;

/** A sandbox or an upload, and the name of the token that created it */
export type Accessed = { id: string; created_by: string };

export class AccessTokens {
  readonly #db: Db;
  readonly #key: Buffer;
  readonly #tokens: Tokens;
  readonly #moved: Pick<MovedAccess, "get" | "delete"> | undefined;
  /** Derived tokens with the hash they derive from. Cached, because unauthenticated clients can trigger a search */
  readonly #kept = new Map<string, { hash: Buffer; token: Buffer }>();

  /** Salts of sandboxes with rotated tokens */
  readonly #salts: Map<string, Buffer>;

  constructor(db: Db, tokens: Tokens, moved?: Pick<MovedAccess, "get" | "delete">) {
    this.#db = db;
    this.#moved = moved;
    db.run("DELETE FROM access_salts WHERE sandbox NOT IN (SELECT id FROM sandboxes)");
    const salts = db.all("SELECT sandbox, salt FROM access_salts");
    this.#salts = new Map(salts.map(({ sandbox, salt }) => [String(sandbox), Buffer.from(salt as Uint8Array)]));
    this.#key = secretOf(db, "e2b_key");
    this.#tokens = tokens;
  }

  of(accessed: Accessed, kind: AccessKind): string {
    return this.#of(accessed, kind).toString();
  }

  opens(presented: string, accessed: Accessed, kind: AccessKind): boolean {
    return isSame(Buffer.from(presented), this.#of(accessed, kind));
  }

  /** Invalidates all access tokens of the sandbox immediately */
  rotate(id: string): void {
    const salt = randomBytes(SALT_BYTES);
    this.#db.durably(() => this.#db.run("INSERT OR REPLACE INTO access_salts (sandbox, salt) VALUES (?, ?)", id, salt));
    this.#salts.set(id, salt);
    this.#moved?.delete(id);
    this.#kept.clear();
  }

  /** What a node to which the sandbox moves needs, so that its tokens stay valid there */
  accessOf(accessed: Accessed): Omit<Access, "preview"> {
    const maker = digestOf(this.#tokens.hashOf(accessed.created_by) ?? NO_MAKER);
    return { envd: this.of(accessed, "envd"), traffic: this.of(accessed, "traffic"), maker };
  }

  /** The sandbox that the token belongs to */
  find<A extends Accessed>(presented: string, among: readonly A[], kind: "envd" | "traffic"): A | undefined {
    const given = Buffer.from(presented);
    return among.find((accessed) => isSame(given, this.#of(accessed, kind)));
  }

  /** Includes the hash of the creator's token, so that revoking or rotating that one invalidates this one */
  #of({ id, created_by: maker }: Accessed, kind: AccessKind): Buffer {
    const hash = this.#tokens.hashOf(maker) ?? NO_MAKER;
    const moved = kind === "upload" ? undefined : this.#moved?.get(id);
    if (moved && kind !== "upload" && moved.maker === digestOf(hash)) return Buffer.from(moved[kind]);
    const name = `${kind}\0${id}\0${maker}`;
    const kept = this.#kept.get(name);
    if (kept?.hash === hash) return kept.token;
    const hmac = createHmac("sha256", this.#key).update(`${kind}\0${id}\0`).update(hash);
    const salt = this.#salts.get(id);
    if (salt) hmac.update("\0").update(salt);
    const token = Buffer.from(hmac.digest("hex"));
    // not cached: clients choose the upload ids and could fill the cache
    if (kind === "upload") return token;
    if (this.#kept.size >= MAX_KEPT) this.#kept.clear();
    this.#kept.set(name, { hash, token });
    return token;
  }
}

function digestOf(maker: Buffer): string {
  return createHash("sha256").update(maker).digest("hex");
}

function isSame(given: Buffer, right: Buffer): boolean {
  return given.length === right.length && timingSafeEqual(given, right);
}
