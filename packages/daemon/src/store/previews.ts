// Preview links: what they open is written in them and signed, so nothing has to be remembered but the key.

import { createHmac, timingSafeEqual } from "node:crypto";
import { secretOf } from "./secret.ts";
import type { Db } from "./db.ts";
import type { Tokens } from "./tokens.ts";

const PREFIX = "fkp_";
/** Longer ones are not ours */
const MAX_LENGTH = 1024;

/** What a link opens, until when, and who made it */
export type Grant = { sandbox: string; port: number; expiresAtUnix: number; principal: string };

export type Verified = { grant: Grant; isExpired: boolean };

export class Previews {
  readonly #key: Buffer;
  readonly #tokens: Tokens;
  readonly #nowMs: () => number;

  constructor(db: Db, tokens: Tokens, opts: { nowMs?: () => number } = {}) {
    this.#key = secretOf(db, "preview_key");
    this.#tokens = tokens;
    this.#nowMs = opts.nowMs ?? Date.now;
  }

  /** Whether it looks like one, valid or not */
  static isToken(text: string): boolean {
    return text.startsWith(PREFIX);
  }

  create(request: { sandbox: string; port: number; expiresInSecs: number; principal: string }): { token: string; expiresAtUnix: number } {
    const { sandbox, port, principal } = request;
    const expiresAtUnix = Math.floor(this.#nowMs() / 1000) + request.expiresInSecs;
    const body = Buffer.from(JSON.stringify([sandbox, port, expiresAtUnix, principal])).toString("base64url");
    return { token: `${PREFIX}${body}.${this.#sign(body, principal)}`, expiresAtUnix };
  }

  /** null: it was not made here, or whoever made it has lost the token that allowed it */
  verify(token: string): Verified | null {
    if (token.length > MAX_LENGTH) return null;
    const [, body = "", signature = ""] = /^fkp_([\w-]+)\.([\w-]{43})$/.exec(token) ?? [];
    const grant = parse(body);
    if (!grant) return null;
    if (!timingSafeEqual(Buffer.from(signature), Buffer.from(this.#sign(body, grant.principal)))) return null;
    return { grant, isExpired: grant.expiresAtUnix * 1000 <= this.#nowMs() };
  }

  /** With the hash of its maker's token: a link ends when that is revoked or replaced */
  #sign(body: string, principal: string): string {
    const maker = this.#tokens.hashOf(principal) ?? Buffer.alloc(0);
    return createHmac("sha256", this.#key).update(body).update("\0").update(maker).digest("base64url");
  }
}

/** Looked at before the signature, so it believes nothing; what it finds counts only with a signature that fits */
function parse(body: string): Grant | null {
  let fields: unknown;
  try {
    fields = JSON.parse(Buffer.from(body, "base64url").toString());
  } catch {
    // no JSON: not made here
    return null;
  }
  if (!Array.isArray(fields)) return null;
  const [sandbox, port, expiresAtUnix, principal] = fields as unknown[];
  if (typeof sandbox !== "string" || typeof port !== "number" || typeof expiresAtUnix !== "number" || typeof principal !== "string")
    return null;
  return { sandbox, port, expiresAtUnix, principal };
}
