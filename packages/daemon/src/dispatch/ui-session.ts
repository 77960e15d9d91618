// Authentication of the dashboard's requests: the cookie of its session, and a header that only its page can send.

import { timingSafeEqual } from "node:crypto";
import { ForkdError } from "@forkd/runtime/errors";
import { allowsScope } from "./auth.ts";
import { pageKeyOf, type UiSession, type UiSessions } from "../store/ui-sessions.ts";
import type { IncomingHttpHeaders } from "node:http";
import type { Scope } from "../api/common.ts";
import type { Identity, Tokens } from "../store/tokens.ts";
import type { Exchange } from "./exchange.ts";

/** The header, and in a WebSocket, which has no headers of the page, the protocol's prefix */
export const KEY_HEADER = "x-forkd-ui";
const KEY_PROTOCOL = "forkd.ui.";
const COOKIE = /^(?:__Host-)?forkd_ui_[0-9a-f]{16}$/;
/** Limit of cookies that are looked up: other hosts below a common domain may have set some of the same name */
const MAX_COOKIES = 8;
/** Principal of the Unix socket's user in a browser: unlike that user, it has no rights on files of the host */
const LOCAL_IN_BROWSER = "ui:local";
const HINT = "Run 'forkd ui' for a new link.";

/** A daemon has its sessions in its store; gateways have theirs in the state of the cluster */
export type UiLogins = {
  /** the id is a part of the cookie's name: browsers send a cookie to all ports of a host */
  daemon: { store: { id: string } };
  tokens: Pick<Tokens, "maxSandboxesOf">;
  uiSessions: Pick<UiSessions, "find">;
};
type Asked = Pick<Exchange, "request" | "response" | "signal" | "controller">;

export function isUiCookie(name: string): boolean {
  return COOKIE.test(name);
}

/** Cookie header without those of dashboards; undefined: it has no others */
export function withoutUiCookies(header: string): string | undefined {
  const rest = header.split(";").filter((pair) => !isUiCookie((pair.split("=", 1)[0] ?? "").trim()));
  return rest.length === 0 ? undefined : rest.join(";").trim();
}

/** Without a Domain, so that no preview host gets it; SameSite keeps foreign sites from sending it */
export function uiCookie(token: string, opts: { store: string; maxAgeSecs: number; isSecure: boolean }): string {
  const prefix = opts.isSecure ? "__Host-" : "";
  const rest = `Path=/; HttpOnly; SameSite=Strict; Max-Age=${opts.maxAgeSecs}${opts.isSecure ? "; Secure" : ""}`;
  return `${prefix}${cookieName(opts.store)}=${token}; ${rest}`;
}

/** The identity behind the cookie; null: there is no cookie. Throws if the cookie or the page's header is not valid */
export function uiIdentity(asked: Asked, services: UiLogins): Identity | null {
  const { request, response, signal, controller } = asked;
  const found = uiSessionOf(request.headers, services);
  if (!found) return null;
  const { session } = found;
  // a stream must not outlive the session
  const over = new ForkdError("UNAUTHORIZED", "Cannot continue: the session of the dashboard has expired.", { hint: HINT });
  const timer = setTimeout(() => controller.abort(over), Math.max(0, session.expiresAtUnix * 1000 - Date.now())).unref();
  const stop = (): void => clearTimeout(timer);
  // an upgraded connection closes without its response, and aborts the signal
  if (request.upgraded) signal.addEventListener("abort", stop, { once: true });
  else response.once("close", stop);
  return identityOf(session, services);
}

/** Same, without effects on the request */
export function uiSessionOf(headers: IncomingHttpHeaders, services: UiLogins): { session: UiSession; token: string } | null {
  const tokens = cookiesOf(headers.cookie, services.daemon.store.id);
  if (tokens.length === 0) return null;
  refuseOtherOrigins(headers);
  for (const token of tokens) {
    const session = services.uiSessions.find(token);
    if (!session) continue;
    if (!isSame(keyOf(headers), pageKeyOf(token)))
      throw new ForkdError("FORBIDDEN", "Cannot accept the cookie: the request does not come from the dashboard's page.", { hint: HINT });
    return { session, token };
  }
  // not counted as a failure: an open page retries after its session has ended
  throw new ForkdError("UNAUTHORIZED", "Cannot serve this: the session of the dashboard has ended.", { hint: HINT });
}

export function identityOf({ id, principal, project, scope }: UiSession, { tokens }: Pick<UiLogins, "tokens">): Identity {
  const name = principal === "local" ? LOCAL_IN_BROWSER : principal;
  return { name, project, scope, maxSandboxes: tokens.maxSandboxesOf(principal), via: "ui", session: id };
}

/** Throws if a page of another origin sent the request: a guest's page may be on the same site as the dashboard */
export function refuseOtherOrigins({ origin, host }: IncomingHttpHeaders): void {
  if (origin === undefined || /^https?:\/\/(.+)$/.exec(origin)?.[1] === host?.toLowerCase()) return;
  throw new ForkdError("FORBIDDEN", "Cannot accept the cookie: the request comes from a page of another origin.");
}

/** Scope of a link: what is asked for, at most the caller's own. Throws FORBIDDEN */
export function scopeOfLink(caller: { scope?: Scope | undefined; session?: string | undefined }, asked: Scope | undefined): Scope {
  const own = caller.scope ?? "read";
  const scope = asked ?? own;
  if (caller.session !== undefined)
    throw new ForkdError("FORBIDDEN", "Cannot make a link: a dashboard cannot extend its own session.", { hint: "Run 'forkd ui'." });
  if (allowsScope(own, scope)) return scope;
  throw new ForkdError("FORBIDDEN", `Cannot make a link with the scope ${scope}: the caller has ${own}.`);
}

/** The code is in the fragment: browsers send it to no server, and no log or proxy sees it */
export function linkTo(host: string, code: string, isTls: boolean): string {
  return `${isTls ? "https" : "http"}://${host}/ui/#login=${code}`;
}

/** Protocol to answer a WebSocket with: the one with the key, or the first; without an answer the browser closes it */
export function uiProtocol(offered: ReadonlySet<string>): string | false {
  const names = [...offered];
  return names.find((name) => name.startsWith(KEY_PROTOCOL)) ?? names[0] ?? false;
}

function cookieName(store: string): string {
  return `forkd_ui_${store}`;
}

function cookiesOf(header: string | undefined, store: string): string[] {
  const name = cookieName(store);
  return (header ?? "")
    .split(";")
    .map((pair) => pair.trim().split("="))
    .flatMap(([key, value]) => (value !== undefined && (key === name || key === `__Host-${name}`) ? [value] : []))
    .slice(0, MAX_COOKIES);
}

function keyOf(headers: IncomingHttpHeaders): string {
  const given = headers[KEY_HEADER];
  if (typeof given === "string") return given;
  const offered = (headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  return (offered.find((name) => name.startsWith(KEY_PROTOCOL)) ?? "").slice(KEY_PROTOCOL.length);
}

function isSame(given: string, right: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(right)];
  return a.length === b.length && timingSafeEqual(a, b);
}
