// Logins to the dashboard of a gateway: links that work once, and the sessions that they become. All gateways of the
// cluster share them, so that a browser may reach another gateway with each request. Only hashes are stored.

import { randomBytes } from "node:crypto";
import {
  idOfSecret,
  LINK_SECS,
  MAX_OF,
  newUiSecret,
  type Login,
  type LoginKind,
  type OpenedSession,
  type UiSession,
} from "@forkd/daemon/store/ui-sessions";
import { Conflict, type ClusterState, type Stored } from "./state.ts";
import type { Scope } from "@forkd/daemon/api/common";
import type { ClusterTokens } from "./tokens.ts";

const KIND = "logins";
/** Object with the id that cookies have in their names; the others are named by hashes */
const OWN = "cluster";
/** The link of another gateway may arrive here after the browser that opens it */
const ARRIVES_MS = 3000;
/** Clients without a login send codes: so many requests may wait at once for the arrival of theirs */
const MAX_WAITING = 64;

/** `stamp`: of the token that it was made with; another value of the token ends it */
type Known = UiSession & { kind: LoginKind; stamp: string; sessionSecs: number; madeMs: number; version: string };

export class ClusterLogins {
  readonly #state: ClusterState;
  readonly #tokens: ClusterTokens;
  #waiting = 0;

  constructor(state: ClusterState, tokens: ClusterTokens) {
    this.#state = state;
    this.#tokens = tokens;
  }

  /** Id of the cluster in the names of cookies; empty as long as the cluster has made no link */
  get id(): string {
    const id = this.#state.get(KIND, OWN)?.value["id"];
    return typeof id === "string" ? id : "";
  }

  /** Throws CLUSTER_STATE_UNAVAILABLE */
  async createLink(login: Login, sessionSecs: number): Promise<{ code: string; expiresAtUnix: number }> {
    await this.#makeId();
    const code = newUiSecret();
    const expiresAtUnix = nowUnix() + LINK_SECS;
    const stamp = this.#tokens.stampOf(login.principal) ?? "";
    await this.#add(idOfSecret(code), { ...login, kind: "link", stamp, expiresAtUnix, sessionSecs });
    return { code, expiresAtUnix };
  }

  /** Makes a session of a link, which then no longer exists; null: the link was used, has expired or never existed */
  async open(code: string): Promise<OpenedSession | null> {
    const id = idOfSecret(code);
    await this.#arrival(id);
    const link = this.#find(id, "link");
    if (!link) return null;
    try {
      // of two gateways that open it at once, one gets a conflict
      await this.#state.remove(KIND, id, link.version);
    } catch (error) {
      if (error instanceof Conflict) return null;
      throw error;
    }
    const { principal, project, scope, stamp, sessionSecs } = link;
    const token = newUiSecret();
    // its streams end by its own time, so it must not be later than that of the token
    const expiresAtUnix = Math.min(nowUnix() + sessionSecs, this.#tokens.ofPrincipal(principal)?.info.expires_at_unix ?? Infinity);
    const session = { principal, project, scope, expiresAtUnix };
    await this.#add(idOfSecret(token), { ...session, kind: "session", stamp, sessionSecs });
    return { token, session: { ...session, id: idOfSecret(token) } };
  }

  find(token: string): UiSession | null {
    return this.#find(idOfSecret(token), "session");
  }

  async end({ id }: Pick<UiSession, "id">): Promise<void> {
    const known = this.#get(id);
    if (known) await this.#remove(known);
  }

  /** Ends all sessions and links of a project; its streams end when the removal is noticed, here and on other gateways */
  async endAll(project: string): Promise<void> {
    for (const known of this.#all()) if (known.project === project) await this.#remove(known);
  }

  /** Calls back with the id of each session that has ended, on any gateway */
  onEnd(listener: (id: string) => void): () => void {
    return this.#state.subscribe((kind, name) => {
      if (kind === KIND && name !== OWN && this.#state.get(KIND, name) === undefined) listener(name);
    });
  }

  /** Null also after the token behind it was revoked or rotated, or has expired */
  #find(id: string, kind: LoginKind): Known | null {
    const known = this.#get(id);
    if (known?.kind !== kind || known.expiresAtUnix <= nowUnix()) return null;
    return known.stamp !== "" && known.stamp === this.#tokens.stampOf(known.principal) ? known : null;
  }

  #get(id: string): Known | null {
    const stored = id === OWN ? undefined : this.#state.get(KIND, id);
    return stored ? knownOf(id, stored) : null;
  }

  #all(): Known[] {
    return [...this.#state.all(KIND)].flatMap(([id, stored]) => (id === OWN ? [] : [knownOf(id, stored)]));
  }

  async #add(id: string, login: Omit<Known, "id" | "madeMs" | "version">): Promise<void> {
    const all = this.#all();
    const late = all.filter(({ expiresAtUnix }) => expiresAtUnix <= nowUnix());
    const alike = all.filter(({ kind, principal }) => kind === login.kind && principal === login.principal);
    const oldest = alike.toSorted((a, b) => a.madeMs - b.madeMs);
    for (const known of new Set([...late, ...oldest.slice(0, Math.max(0, alike.length + 1 - MAX_OF[login.kind]))]))
      await this.#remove(known);
    const { kind, principal, project, scope, stamp, expiresAtUnix: expires_at_unix, sessionSecs: session_secs } = login;
    const value = { kind, principal, project, scope, stamp, expires_at_unix, session_secs, made_ms: Date.now() };
    await this.#state.put(KIND, id, value, null);
  }

  async #remove({ id, version }: Known): Promise<void> {
    try {
      await this.#state.remove(KIND, id, version);
    } catch (error) {
      // another gateway has removed it
      if (!(error instanceof Conflict)) throw error;
    }
  }

  async #makeId(): Promise<void> {
    if (this.id !== "") return;
    try {
      await this.#state.put(KIND, OWN, { id: randomBytes(8).toString("hex") }, null);
    } catch (error) {
      // another gateway has made it, and its value was read
      if (!(error instanceof Conflict)) throw error;
    }
  }

  /** Resolves when the object is known here, has been removed, or has not come in time */
  async #arrival(id: string): Promise<void> {
    const isKnown = (): boolean => this.#state.get(KIND, id) !== undefined || this.#state.removed(KIND).some(({ name }) => name === id);
    if (isKnown() || this.#waiting >= MAX_WAITING) return;
    this.#waiting++;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, ARRIVES_MS);
    const stop = this.#state.subscribe((kind, name) => {
      if (kind === KIND && name === id) resolve();
    });
    await promise;
    clearTimeout(timer);
    stop();
    this.#waiting--;
  }
}

function knownOf(id: string, { value, version }: Stored): Known {
  return {
    id,
    version,
    kind: value["kind"] === "link" ? "link" : "session",
    principal: String(value["principal"]),
    project: String(value["project"]),
    scope: value["scope"] as Scope,
    stamp: String(value["stamp"]),
    expiresAtUnix: Number(value["expires_at_unix"]),
    sessionSecs: Number(value["session_secs"]),
    madeMs: Number(value["made_ms"]),
  };
}

function nowUnix(): number {
  return Math.floor(Date.now() / 1000);
}
