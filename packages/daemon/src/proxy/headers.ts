// Header filter between client and guest.

import { hopsOf, pairsOf } from "../dispatch/hop-headers.ts";
import { confined, withoutOurs } from "./cookie.ts";
import type { Address } from "../dispatch/target.ts";
import type { IsOurs } from "./our-tokens.ts";

/** Set by the proxy, or untrusted; Node has already handled `expect` */
const REPLACED = /^(host|expect|forwarded|x-real-ip|x-request-id|x-forwarded-.*|x-forkd-.*|e2b-.*)$/;
/** Form of an access token. E2B's SDKs send one with every request; the proxy removes it for every sandbox */
const ACCESS_TOKEN = /^\s*[0-9a-f]{64}\s*$/;
/** Headers that affect the whole origin, which for path addresses is the API's */
const FOR_THE_ORIGIN =
  /^(access-control-.*|alt-svc|clear-site-data|nel|public-key-pins.*|report-to|reporting-endpoints|service-worker-allowed|strict-transport-security)$/;
const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

export const TOKEN_HEADER = "x-forkd-token";

export type Forwarded = {
  address: Address;
  /** the client's Host */
  host: string;
  /** replaces it for the guest */
  maskedHost?: string | undefined;
  requestId: string;
  remote: string | null;
  isTls: boolean;
  /** detects forkd's tokens; the guest must not get them */
  isOurs: IsOurs;
};

/** Takes and returns `rawHeaders` form: order, case and repetitions are kept */
export function requestHeaders(raw: readonly string[], about: Forwarded): string[] {
  const { address, host, maskedHost } = about;
  const hops = hopsOf(raw);
  const isChunked = pairsOf(raw).some(([name]) => name.toLowerCase() === "transfer-encoding");
  const out = ["Host", maskedHost ?? (address.by === "host" ? host : `localhost:${address.port}`)];
  for (const [name, value] of pairsOf(raw)) {
    const key = name.toLowerCase();
    if (hops.has(key) || REPLACED.test(key) || (key === "x-access-token" && ACCESS_TOKEN.test(value))) continue;
    if (key === "cookie") {
      const kept = withoutOurs(value, about.isOurs);
      if (kept !== undefined) out.push(name, kept);
    } else if (!about.isOurs(value)) out.push(name, value);
  }
  out.push("X-Request-Id", about.requestId, "X-Forwarded-Host", host, "X-Forwarded-Proto", about.isTls ? "https" : "http");
  if (isChunked) out.push("Transfer-Encoding", "chunked");
  if (about.remote !== null) out.push("X-Forwarded-For", about.remote);
  if (address.prefix !== "") out.push("X-Forwarded-Prefix", address.prefix);
  return out;
}

export type Answered = {
  address: Address;
  host: string;
  /** the client used a token, which a redirect must not carry to another host */
  byToken: boolean;
};

export function responseHeaders(raw: readonly string[], about: Answered): string[] {
  const { address } = about;
  const isPath = address.by === "path";
  const hops = hopsOf(raw);
  const out: string[] = [];
  for (const [name, value] of pairsOf(raw)) {
    const key = name.toLowerCase();
    if (hops.has(key) || key === "x-request-id" || key.startsWith("x-forkd-") || (isPath && FOR_THE_ORIGIN.test(key))) continue;
    if (key === "set-cookie") {
      const cookie = confined(value, isPath ? address.prefix : null);
      if (cookie !== null) out.push(name, cookie);
    } else if (key === "location") {
      const location = locationOf(value, about);
      if (location === null) out.push("X-Forkd-Location", value);
      else out.push(name, location);
    } else out.push(name, value);
  }
  // a guest's page must not act with the rights of the API's origin
  if (isPath) out.push("Content-Security-Policy", "sandbox", "X-Content-Type-Options", "nosniff");
  return out;
}

/** null: the redirect leaves the guest */
function locationOf(value: string, { address, host, byToken }: Answered): string | null {
  const isPath = address.by === "path";
  if (!isPath && !byToken) return value;
  const base = isPath ? `http://localhost:${address.port}${address.path}` : `http://${host}`;
  if (!URL.canParse(value, base)) return null;
  const url = new URL(value, base);
  if (!isPath) return url.host === new URL(base).host ? value : null;
  const isGuest = url.protocol === "http:" && LOOPBACK.has(url.hostname) && (url.port || "80") === address.port;
  return isGuest ? address.prefix + url.pathname + url.search + url.hash : null;
}
