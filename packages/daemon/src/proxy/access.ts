// Authentication of proxied requests: token, preview link, or the link's cookie.

import { checkThere, openedByTraffic } from "./traffic.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { Previews } from "../store/previews.ts";
import { authenticate, bearerOf } from "../dispatch/auth.ts";
import { hostOf, type Domain } from "../dispatch/proxy-domain.ts";
import { previewCookies, takePreview } from "./cookie.ts";
import { TOKEN_HEADER } from "./headers.ts";
import { tokenFinder, withoutTokens, type IsOurs } from "./our-tokens.ts";
import type { IncomingHttpHeaders } from "node:http";
import type { Accessed } from "../store/access-tokens.ts";
import type { Identity } from "../store/tokens.ts";
import type { TransportKind } from "../dispatch/auth.ts";
import type { Services } from "../dispatch/services.ts";
import type { Address } from "../dispatch/target.ts";

const HINT = "Make a link with 'forkd preview', or send a token as X-Forkd-Token.";

export type Access = {
  by: "local" | "token" | "preview";
  identity: Identity;
  /** the token was in the URL: the proxy replaces it with a cookie */
  link: { token: string; expiresAtUnix: number } | null;
  /** path for the guest, without forkd's tokens */
  path: string;
  /** detects forkd's tokens in headers; the guest must not get them */
  isOurs: IsOurs;
};

type Asked = {
  address: Address;
  headers: IncomingHttpHeaders;
  kind: TransportKind;
  remote: string;
  stated: Identity | null;
  domain: Domain | null;
};
type Manager = Services["manager"];
type Needs = Pick<Services, "failures" | "previews" | "tokens" | "accessTokens"> & {
  manager: { ports: Pick<Manager["ports"], "find"> };
};
type Opened = Pick<Access, "by" | "identity"> & { expiresAtUnix: number };

export function admitToServer(asked: Asked, services: Needs): Access {
  const { address, headers, kind, remote, stated } = asked;
  if (address.isE2b) checkThere(address.id, services);
  const { token: linked, path } = takePreview(address.path);
  const sandbox = sandboxOf(address, services);
  const isOurs = tokenFinder(services, sandbox);
  const rest = { link: null, path: withoutTokens(path, isOurs), isOurs };
  const given = [headers[TOKEN_HEADER]].flat()[0];
  if (kind === "tcp" && stated) return { ...rest, by: "token", identity: stated };
  const traffic = kind === "tcp" && given === undefined && linked === undefined ? openByTraffic(asked, services) : null;
  if (traffic) return { ...rest, ...traffic };
  if (kind === "tcp" && address.by === "host") {
    if (linked !== undefined) {
      const { expiresAtUnix, ...opened } = open(linked, asked, services);
      return { ...rest, ...opened, link: { token: linked, expiresAtUnix } };
    }
    if (given === undefined) return { ...rest, ...openByCookie(asked, services) };
    if (Previews.isToken(given)) return { ...rest, ...open(given, asked, services) };
  }
  // under the guest's own host, the Authorization header belongs to the guest's server
  const token = given ?? (address.by === "path" ? bearerOf(headers.authorization) : undefined);
  // counted per sandbox: otherwise a guest's page could send wrong tokens and block its visitor's address for the API
  const place = address.by === "host" ? sandbox?.id : undefined;
  return { ...rest, by: kind === "unix" ? "local" : "token", identity: authenticate({ kind, remote, token, place }, services) };
}

/** Throws UNAUTHORIZED. Not counted as a failure: signatures cannot be guessed, and pages retry after expiry */
function open(token: string, { address }: Asked, { previews, manager }: Needs): Opened {
  const known = previews.verify(token);
  const refuse = (why: string): ForkdError =>
    new ForkdError("UNAUTHORIZED", `Cannot open port ${address.port} of ${address.id}: the preview link ${why}.`, { hint: HINT });
  if (!known) throw refuse("is expired or invalid");
  if (known.isExpired) throw refuse("has expired");
  const { sandbox, port, principal, expiresAtUnix } = known.grant;
  const opened = manager.ports.find(sandbox);
  // by its id, or by the name that it has in its project
  const isThis = opened !== undefined && manager.ports.find(address.id, opened.project)?.id === sandbox;
  if (!isThis || address.port !== String(port)) throw refuse("is for another sandbox or port");
  const { project } = opened;
  return { by: "preview", identity: { name: principal, project, scope: "exec", maxSandboxes: null, via: "preview" }, expiresAtUnix };
}

function openByTraffic({ address, headers }: Asked, services: Needs): Pick<Opened, "by" | "identity"> | null {
  const opened = openedByTraffic(address.id, headers, services);
  return opened && { by: "preview", identity: { ...opened, scope: "exec", maxSandboxes: null } };
}

function openByCookie(asked: Asked, services: Needs): Opened {
  const { address, headers } = asked;
  let failure = new ForkdError("UNAUTHORIZED", `Cannot open port ${address.port} of ${address.id}: a preview link or a token is needed.`, {
    hint: HINT,
  });
  for (const cookie of previewCookies(headers.cookie)) {
    try {
      const opened = open(cookie, asked, services);
      refuseOtherPages(asked, services);
      return opened;
    } catch (error) {
      if (!(error instanceof ForkdError)) throw error;
      failure = error;
    }
  }
  throw failure;
}

/** Cross-site check for the cookie: browsers also send it with requests from other pages, such as another sandbox's */
function refuseOtherPages({ address, headers, domain }: Asked, { manager }: Needs): void {
  const { origin } = headers;
  const site = headers["sec-fetch-site"];
  if (origin === undefined) {
    const isOther = site === "same-site" || site === "cross-site";
    if (!isOther || headers["sec-fetch-mode"] === "navigate") return;
  } else {
    const host = /^https?:\/\/(.+)$/.exec(origin)?.[1];
    if (host !== undefined && host === headers.host?.toLowerCase()) return;
    const page = domain && hostOf(host, domain);
    // pages on other ports of the same sandbox are trusted
    if (page && (page.id === address.id || manager.ports.find(page.id)?.id === manager.ports.find(address.id)?.id)) return;
  }
  throw new ForkdError("FORBIDDEN", `Cannot open port ${address.port} of ${address.id}: the request comes from a page of another origin.`, {
    hint: "Open it by its own address.",
  });
}

function sandboxOf({ id }: Address, { manager }: Needs): Accessed | undefined {
  return manager.ports.find(id);
}
