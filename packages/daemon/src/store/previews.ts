// Preview links: signed tokens that contain their grant, so only the key is stored.

import { createHmac, timingSafeEqual } from "node:crypto";
import { secretOf } from "./secret.ts";
import type { Db } from "./db.ts";
import type { MovedAccess } from "./moved-access.ts";
import type { Tokens } from "./tokens.ts";

const PREFIX = "fkp_";
/** Longer tokens are rejected */
const MAX_LENGTH = 1024;

/** Target, expiry and creator of a link */
export type Grant = { sandbox: string; port: number; expiresAtUnix: number; principal: string };

export type Verified = { grant: Grant; isExpired: boolean };

export class Previews {
  readonly #key: Buffer;
  readonly #tokens: Tokens;
  readonly #nowMs: () => number;
  readonly #moved: Pick<MovedAccess, "get"> | undefined;

  constructor(db: Db, tokens: Tokens, opts: { nowMs?: () => number; moved?: Pick<MovedAccess, "get"> } = {}) {
    this.#moved = opts.moved;
    this.#key = secretOf(db, "preview_key");
    this.#tokens = tokens;
    this.#nowMs = opts.nowMs ?? Date.now;
  }

  /** Whether the text has the form of a preview token, valid or not */
  static isToken(text: string): boolean {
    return text.startsWith(PREFIX);
  }

  create(request: { sandbox: string; port: number; expiresInSecs: number; principal: string }): { token: string; expiresAtUnix: number } {
    const { sandbox, port, principal } = request;
    const expiresAtUnix = Math.floor(this.#nowMs() / 1000) + request.expiresInSecs;
    const body = Buffer.from(JSON.stringify([sandbox, port, expiresAtUnix, principal])).toString("base64url");
    return { token: `${PREFIX}${body}.${this.#sign(body, principal, this.#keyOf(sandbox))}`, expiresAtUnix };
  }

  /** null: invalid signature, or the creator's token was revoked or rotated */
  verify(token: string): Verified | null {
    if (token.length > MAX_LENGTH) return null;
    const [, body = "", signature = ""] = /^fkp_([\w-]+)\.([\w-]{43})$/.exec(token) ?? [];
    const grant = parse(body);
    if (!grant) return null;
    // the second: links of earlier versions
    const isSigned = [this.#keyOf(grant.sandbox), this.#key].map((key) =>
      timingSafeEqual(Buffer.from(signature), Buffer.from(this.#sign(body, grant.principal, key))),
    );
    if (!isSigned.includes(true)) return null;
    return { grant, isExpired: grant.expiresAtUnix * 1000 <= this.#nowMs() };
  }

  /** Key of the sandbox's links: goes with it to another node */
  keyOf(sandbox: string): string {
    return this.#keyOf(sandbox).toString("base64url");
  }

  #keyOf(sandbox: string): Buffer {
    const moved = this.#moved?.get(sandbox);
    if (moved) return Buffer.from(moved.preview, "base64url");
    return createHmac("sha256", this.#key).update(`sandbox\0${sandbox}`).digest();
  }

  /** Includes the hash of the creator's token, so that revoking or rotating it invalidates the link */
  #sign(body: string, principal: string, key: Buffer): string {
    const maker = this.#tokens.hashOf(principal) ?? Buffer.alloc(0);
    return createHmac("sha256", key).update(body).update("\0").update(maker).digest("base64url");
  }
}

/** Parses untrusted input before the signature check; the result counts only if the signature is valid */
function parse(body: string): Grant | null {
  let fields: unknown;
  try {
    fields = JSON.parse(Buffer.from(body, "base64url").toString());
  } catch {
    // not JSON, so not a token of this daemon
    return null;
  }
  if (!Array.isArray(fields)) return null;
  const [sandbox, port, expiresAtUnix, principal] = fields as unknown[];
  if (typeof sandbox !== "string" || typeof port !== "number" || typeof expiresAtUnix !== "number" || typeof principal !== "string")
    return null;
  return { sandbox, port, expiresAtUnix, principal };
}
