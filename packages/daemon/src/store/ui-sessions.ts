// Logins to the dashboard: links that work once, and the sessions that they become. Only hashes are stored.

import { createHash, randomBytes } from "node:crypto";
import type { Scope } from "../api/common.ts";
import type { Db, Row } from "./db.ts";
import type { Tokens } from "./tokens.ts";

/** Prefix of links and sessions; the proxy recognizes it and keeps both from guests */
const PREFIX = "fku_";
const SECRET_BYTES = 32;
/** A link is opened at once by the command that makes it */
export const LINK_SECS = 120;
/** Per principal; the oldest one ends when there are more */
export const MAX_OF: Record<LoginKind, number> = { link: 16, session: 32 };
const KEY_CHARACTERS = 40;

export type LoginKind = "link" | "session";

/** Who logs in: a token by its name, or the user of the Unix socket, who has none */
export type Login = { principal: string; project: string; scope: Scope };

export type UiSession = Login & {
  /** names the session in the daemon; no secret */
  id: string;
  expiresAtUnix: number;
};

export type OpenedSession = { token: string; session: UiSession };

type Known = UiSession & { kind: LoginKind; maker: Buffer; sessionSecs: number };

export class UiSessions {
  readonly #db: Db;
  readonly #tokens: Tokens;
  readonly #now: () => number;
  /** all of them by hash, oldest first: each request looks one up */
  readonly #known = new Map<string, Known>();

  constructor(db: Db, tokens: Tokens, opts: { nowMs?: () => number } = {}) {
    this.#db = db;
    this.#tokens = tokens;
    const nowMs = opts.nowMs ?? Date.now;
    this.#now = () => Math.floor(nowMs() / 1000);
    db.run("DELETE FROM ui_sessions WHERE expires_at <= ?", this.#now());
    for (const row of db.all("SELECT * FROM ui_sessions ORDER BY rowid")) {
      const known = fromRow(row);
      this.#known.set(known.id, known);
    }
  }

  createLink(login: Login, sessionSecs: number): { code: string; expiresAtUnix: number } {
    const code = newUiSecret();
    const expiresAtUnix = this.#now() + LINK_SECS;
    const maker = this.#tokens.hashOf(login.principal) ?? Buffer.alloc(0);
    this.#db.durably(() => this.#add({ ...login, kind: "link", id: idOfSecret(code), maker, expiresAtUnix, sessionSecs }));
    return { code, expiresAtUnix };
  }

  /** Makes a session of a link, which then no longer exists; null: the link was used, has expired or never existed */
  open(code: string): OpenedSession | null {
    const link = this.#find(code, "link");
    if (!link) return null;
    const token = newUiSecret();
    const session: Known = { ...link, kind: "session", id: idOfSecret(token), expiresAtUnix: this.#now() + link.sessionSecs };
    // one transaction, on disk: a power failure must not bring the link back
    this.#db.durably(() => {
      this.#remove(link);
      this.#add(session);
    });
    return { token, session };
  }

  find(token: string): UiSession | null {
    return this.#find(token, "session");
  }

  end(session: Pick<UiSession, "id">): void {
    const known = this.#known.get(session.id);
    if (known) this.#db.durably(() => this.#remove(known));
  }

  /** Ends all sessions and links of a project; returns the sessions */
  endAll(project: string): UiSession[] {
    const all = [...this.#known.values()].filter((known) => known.project === project);
    this.#db.durably(() => {
      for (const known of all) this.#remove(known);
    });
    return all.filter(({ kind }) => kind === "session");
  }

  /** Null also after the token behind it was revoked or rotated */
  #find(secret: string, kind: LoginKind): Known | null {
    const known = this.#known.get(idOfSecret(secret));
    if (known?.kind !== kind || known.expiresAtUnix <= this.#now()) return null;
    const maker = this.#tokens.hashOf(known.principal) ?? Buffer.alloc(0);
    return maker.equals(known.maker) ? known : null;
  }

  #add(known: Known): void {
    const { id, kind, principal, project, maker, scope, expiresAtUnix, sessionSecs } = known;
    const alike = [...this.#known.values()].filter((other) => other.kind === kind && other.principal === principal);
    const over = alike.slice(0, Math.max(0, alike.length + 1 - MAX_OF[kind]));
    const late = [...this.#known.values()].filter((other) => other.expiresAtUnix <= this.#now());
    for (const each of [...over, ...late]) this.#remove(each);
    this.#db.run(
      "INSERT INTO ui_sessions (hash, kind, principal, project, maker, scope, expires_at, session_secs) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      id,
      kind,
      principal,
      project,
      maker,
      scope,
      expiresAtUnix,
      sessionSecs,
    );
    this.#known.set(id, known);
  }

  #remove({ id }: Known): void {
    this.#db.run("DELETE FROM ui_sessions WHERE hash = ?", id);
    this.#known.delete(id);
  }
}

/**
 * Value of the header that each request of the dashboard has beside the cookie. Browsers send a cookie to all ports of
 * a host, so another server there may see it; the page keeps this value where only its own origin can read it
 */
export function pageKeyOf(token: string): string {
  return createHash("sha256").update(`page key\0${token}`).digest("hex").slice(0, KEY_CHARACTERS);
}

export function newUiSecret(): string {
  return PREFIX + randomBytes(SECRET_BYTES).toString("hex");
}

/** Hash, by which a link or a session is stored */
export function idOfSecret(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}

function fromRow(row: Row): Known {
  return {
    id: row["hash"] as string,
    kind: row["kind"] as LoginKind,
    principal: row["principal"] as string,
    project: row["project"] as string,
    maker: Buffer.from(row["maker"] as Uint8Array),
    scope: row["scope"] as Scope,
    expiresAtUnix: row["expires_at"] as number,
    sessionSecs: row["session_secs"] as number,
  };
}
