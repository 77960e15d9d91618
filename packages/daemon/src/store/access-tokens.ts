// What lets a client of E2B's protocol into one sandbox. Derived, so nothing has to be remembered but the key.

import { createHmac, timingSafeEqual } from "node:crypto";
import { secretOf } from "./secret.ts";
import type { Db } from "./db.ts";
import type { Tokens } from "./tokens.ts";

/** `envd`: processes and files; `traffic`: servers in the guest; `upload`: one file of a template */
export type AccessKind = "envd" | "traffic" | "upload";

/** A sandbox, or a place for a file, and whose token made it */
export type Accessed = { id: string; created_by: string };

export class AccessTokens {
  readonly #key: Buffer;
  readonly #tokens: Tokens;

  constructor(db: Db, tokens: Tokens) {
    this.#key = secretOf(db, "e2b_key");
    this.#tokens = tokens;
  }

  /** With the hash of its maker's token: it ends when that is revoked or replaced */
  of({ id, created_by: maker }: Accessed, kind: AccessKind): string {
    const hash = this.#tokens.hashOf(maker) ?? Buffer.alloc(0);
    return createHmac("sha256", this.#key).update(`${kind}\0${id}\0`).update(hash).digest("hex");
  }

  opens(presented: string, sandbox: Accessed, kind: AccessKind): boolean {
    const given = Buffer.from(presented);
    const right = Buffer.from(this.of(sandbox, kind));
    return given.length === right.length && timingSafeEqual(given, right);
  }
}
