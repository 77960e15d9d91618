// Who may reach a server inside a sandbox: whoever has a token, and whoever has a link to this very server.

import { openedByTraffic } from "../../e2b/traffic.ts";
import { ForkdError } from "../../errors.ts";
import { Previews } from "../../store/previews.ts";
import { authenticate, bearerOf } from "../auth.ts";
import { hostOf, type Address, type Domain } from "./address.ts";
import { previewCookies, takePreview } from "./cookie.ts";
import { TOKEN_HEADER } from "./headers.ts";
import type { IncomingHttpHeaders } from "node:http";
import type { Identity } from "../../store/tokens.ts";
import type { TransportKind } from "../auth.ts";
import type { Services } from "../services.ts";

const OUR_TOKEN = /\bfk[dp]_[\w-]{8}/;
const HINT = "Make a link with 'forkd preview', or send a token as X-Forkd-Token.";

export type Access = {
  by: "local" | "token" | "preview";
  identity: Identity;
  /** the token was in the address itself: a browser gets a cookie in its place */
  link: { token: string; expiresAtUnix: number } | null;
  /** for the guest, without the token of a link */
  path: string;
  /** whether Authorization is the app's own */
  passesAuthorization: boolean;
};

type Asked = { address: Address; headers: IncomingHttpHeaders; kind: TransportKind; remote: string; domain: Domain | null };
type Manager = Services["manager"];
type Needs = Pick<Services, "failures" | "previews" | "tokens" | "accessTokens"> & {
  manager: { ports: Pick<Manager["ports"], "idOf">; sandboxes: Pick<Manager["sandboxes"], "get"> };
};
type Opened = Pick<Access, "by" | "identity"> & { expiresAtUnix: number };

export function admitToServer(asked: Asked, services: Needs): Access {
  const { address, headers, kind, remote } = asked;
  const { token: linked, path } = takePreview(address.path);
  const rest = { link: null, path, passesAuthorization: isForeign(headers.authorization, services) };
  const given = [headers[TOKEN_HEADER]].flat()[0];
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
  // on a host of its own, Authorization is never ours
  const token = given ?? (address.by === "path" ? bearerOf(headers.authorization) : undefined);
  return { ...rest, by: kind === "unix" ? "local" : "token", identity: authenticate({ kind, remote, token }, services) };
}

/** Throws UNAUTHORIZED; not counted as a wrong token: a signature is not guessed, and a page that is left open goes on asking when its link has expired */
function open(token: string, { address }: Asked, { previews, manager }: Needs): Opened {
  const known = previews.verify(token);
  const refuse = (why: string): ForkdError =>
    new ForkdError("UNAUTHORIZED", `Cannot open port ${address.port} of ${address.id}: the preview link ${why}.`, { hint: HINT });
  if (!known) throw refuse("is not valid any more, or never was");
  if (known.isExpired) throw refuse("has expired");
  const { sandbox, port, principal, expiresAtUnix } = known.grant;
  if (manager.ports.idOf(address.id) !== sandbox || address.port !== String(port)) throw refuse("is for another sandbox or port");
  return { by: "preview", identity: { name: principal, scope: "exec", maxSandboxes: null }, expiresAtUnix };
}

function openByTraffic({ address, headers }: Asked, services: Needs): Pick<Opened, "by" | "identity"> | null {
  const maker = openedByTraffic(address.id, headers, services);
  return maker === null ? null : { by: "preview", identity: { name: maker, scope: "exec", maxSandboxes: null } };
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

/** A browser sends cookies whichever page asks, also when the page of another sandbox does */
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
    // another port of the same sandbox is no stranger
    if (page && manager.ports.idOf(page.id) === manager.ports.idOf(address.id)) return;
  }
  throw new ForkdError("FORBIDDEN", `Cannot open port ${address.port} of ${address.id}: the page of another origin asks for it.`, {
    hint: "Open it by its own address.",
  });
}

/** A token of ours is for nobody in a guest, whoever put it there */
function isForeign(authorization: string | undefined, { tokens }: Needs): boolean {
  if (authorization === undefined || OUR_TOKEN.test(authorization)) return false;
  const bearer = bearerOf(authorization);
  return bearer === undefined || !tokens.knows(bearer);
}
