// Front end of the dashboard: its files, and the login that turns a link into a cookie.

import { ForkdError } from "@forkd/runtime/errors";
import { openUiSession, type UiSessionInfo } from "../api/ui.ts";
import { refuseBlocked } from "../dispatch/auth.ts";
import { parse } from "../dispatch/parse.ts";
import { respond } from "../dispatch/respond.ts";
import { identityOf, refuseOtherOrigins, uiCookie, uiIdentity, uiSessionOf, type UiLogins } from "../dispatch/ui-session.ts";
import { pageKeyOf, type OpenedSession, type UiSession } from "../store/ui-sessions.ts";
import { readJson } from "../streams/body.ts";
import { UiFiles } from "./files.ts";
import type { Answer } from "../dispatch/answer.ts";
import type { Exchange } from "../dispatch/exchange.ts";
import type { InFlight } from "../dispatch/in-flight.ts";
import type { Admitted, FrontEnd, Work } from "../dispatch/front-end.ts";
import type { Services } from "../dispatch/services.ts";
import type { Target } from "../dispatch/target.ts";

type UiTarget = Extract<Target, { to: "ui" }>;

/** What the dashboard needs of a daemon or a gateway */
export type UiServices = Pick<Services, "failures" | "limits"> & {
  daemon: UiLogins["daemon"] & { version: string };
  tokens: UiLogins["tokens"];
  uiSessions: UiLogins["uiSessions"] & {
    open: (code: string) => OpenedSession | null | Promise<OpenedSession | null>;
    end: (session: UiSession) => void | Promise<void>;
  };
  inFlight: Pick<InFlight, "abortSession">;
  isCluster?: boolean;
};

const SESSION = "/ui/session";
const METHODS = new Set(["GET", "HEAD"]);
const WITHOUT_LOGIN: Admitted = { identity: null, scope: null };
/** Browsers must not run inline script, load anything from another host, or show the page in a frame */
const PAGE_HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; " +
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-frame-options": "DENY",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
};
const SECRET_HEADERS = { "cache-control": "no-store", "cross-origin-resource-policy": "same-origin" };

export class Ui implements FrontEnd<"ui"> {
  readonly #services: UiServices;
  readonly #files: UiFiles;

  constructor(services: UiServices, files: UiFiles = new UiFiles()) {
    this.#services = services;
    this.#files = files;
  }

  mayUpgrade(): boolean {
    return false;
  }

  open(exchange: Exchange, { path }: UiTarget): Work {
    const isSession = path === SESSION;
    return {
      label: isSession ? SESSION : "/ui/*",
      path,
      snapshot: null,
      // the files need no login and are not audited
      isProbe: !isSession,
      sandbox: () => null,
      admit: () => this.#admit(exchange),
      serve: async () => respond(exchange, isSession ? await this.#session(exchange) : await this.#file(exchange, path)),
      refuse: ({ status, headers, problem }) => ({ status, headers: { ...headers, ...SECRET_HEADERS }, body: problem }),
    };
  }

  #admit(exchange: Exchange): Admitted {
    const { method, remote } = exchange;
    if (method === "POST") {
      refuseBlocked(remote, this.#services.failures);
      return WITHOUT_LOGIN;
    }
    const identity = uiIdentity(exchange, this.#services);
    if (!identity) throw new ForkdError("UNAUTHORIZED", "Cannot serve this: the browser is not logged in.", { hint: "Run 'forkd ui'." });
    return { identity, scope: "read" };
  }

  async #file({ method, request }: Exchange, path: string): Promise<Answer> {
    if (!METHODS.has(method)) throw refusal(method, [...METHODS]);
    const { type, bytes, zipped, isHashed } = await this.#files.get(path);
    const mayZip = /\bgzip\b/i.test(request.headers["accept-encoding"] ?? "");
    return {
      status: 200,
      body: mayZip ? zipped : bytes,
      headers: {
        ...PAGE_HEADERS,
        "content-type": type,
        vary: "accept-encoding",
        "cache-control": isHashed ? "public, max-age=31536000, immutable" : "no-cache",
        ...(mayZip ? { "content-encoding": "gzip" } : {}),
      },
    };
  }

  async #session(exchange: Exchange): Promise<Answer> {
    if (exchange.method === "POST") return this.#logIn(exchange);
    const found = uiSessionOf(exchange.request.headers, this.#services);
    if (!found) throw new ForkdError("UNAUTHORIZED", "Cannot serve this: the browser is not logged in.", { hint: "Run 'forkd ui'." });
    if (METHODS.has(exchange.method)) return { status: 200, body: this.#infoOf(found.session), headers: SECRET_HEADERS };
    if (exchange.method === "DELETE") return this.#logOut(exchange, found.session);
    throw refusal(exchange.method, ["GET", "POST", "DELETE"]);
  }

  async #logIn(exchange: Exchange): Promise<Answer> {
    const { request, remote, transport } = exchange;
    const { failures, limits, uiSessions, daemon } = this.#services;
    refuseOtherOrigins(request.headers);
    // no page of another origin can send this type without a preflight
    if (!/^\s*application\/json\s*(;|$)/i.test(request.headers["content-type"] ?? ""))
      throw new ForkdError("UNSUPPORTED_MEDIA_TYPE", "Cannot read the body: its Content-Type is not application/json.");
    const { code } = parse(openUiSession, await readJson(request, limits), "body");
    const opened = await uiSessions.open(code);
    if (!opened) {
      failures.add(remote);
      throw new ForkdError("UNAUTHORIZED", "Cannot log in: the link was opened before, has expired or is not known.", {
        hint: "Run 'forkd ui' for a new link.",
      });
    }
    const { token, session } = opened;
    exchange.identity = identityOf(session, this.#services);
    const maxAgeSecs = session.expiresAtUnix - Math.floor(Date.now() / 1000);
    const isSecure = transport.tls !== null || request.headers.origin?.startsWith("https://") === true;
    return {
      status: 201,
      body: { ...this.#infoOf(session), key: pageKeyOf(token) },
      headers: { ...SECRET_HEADERS, "set-cookie": uiCookie(token, { store: daemon.store.id, maxAgeSecs, isSecure }) },
    };
  }

  async #logOut({ transport }: Exchange, session: UiSession): Promise<Answer> {
    const { uiSessions, inFlight, daemon } = this.#services;
    await uiSessions.end(session);
    inFlight.abortSession(session.id, new ForkdError("UNAUTHORIZED", "Cannot continue: the browser was logged out."));
    const cookie = uiCookie("", { store: daemon.store.id, maxAgeSecs: 0, isSecure: transport.tls !== null });
    return { status: 204, headers: { ...SECRET_HEADERS, "set-cookie": cookie } };
  }

  #infoOf({ principal, project, scope, expiresAtUnix }: UiSession): UiSessionInfo {
    const { daemon, isCluster = false } = this.#services;
    return { principal, project, scope, expires_at_unix: expiresAtUnix, version: daemon.version, is_cluster: isCluster };
  }
}

function refusal(method: string, allow: string[]): ForkdError {
  return new ForkdError("METHOD_NOT_ALLOWED", `Cannot ${method} this path: it takes ${allow.join(", ")}.`, { details: { allow } });
}
