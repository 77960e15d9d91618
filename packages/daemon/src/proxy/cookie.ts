// Cookie filter of the proxy: removes forkd's cookies from requests, and confines a guest's cookies to its host or path.

import { PREVIEW_PARAMETER } from "../dispatch/proxy-domain.ts";
import { isUiCookie } from "../dispatch/ui-session.ts";
import type { IsOurs } from "./our-tokens.ts";

/** Name without TLS; under TLS the prefix `__Host-` keeps other hosts from setting it */
const PLAIN = PREVIEW_PARAMETER;
const SECURE = `__Host-${PLAIN}`;
/** Limit of cookies that are verified: other hosts may have set cookies of the same name */
const MAX_COOKIES = 8;

export function previewCookies(header: string | undefined): string[] {
  return pairsOf(header)
    .filter(isPreview)
    .slice(0, MAX_COOKIES)
    .map((pair) => pair.slice(pair.indexOf("=") + 1));
}

/** Cookie header without forkd's cookies and without cookies that contain a forkd token; undefined: empty */
export function withoutOurs(header: string, hasToken: IsOurs): string | undefined {
  const pairs = pairsOf(header);
  const rest = pairs.filter((pair) => !isOurs(pair) && !hasToken(pair));
  if (rest.length === pairs.length) return header;
  return rest.length === 0 ? undefined : rest.join("; ");
}

export function previewCookie(token: string, opts: { maxAgeSecs: number; isSecure: boolean }): string {
  const name = opts.isSecure ? SECURE : PLAIN;
  return `${name}=${token}; Path=/; HttpOnly; SameSite=Lax; Max-Age=${opts.maxAgeSecs}${opts.isSecure ? "; Secure" : ""}`;
}

/** Set-Cookie of a guest, confined to the guest's host or path; null: it would replace one of forkd's cookies */
export function confined(header: string, path: string | null): string | null {
  const [pair = "", ...attributes] = header.split(";").map((part) => part.trim());
  if (isOurs(pair)) return null;
  const dropped = path === null ? /^domain\s*(=|$)/i : /^(domain|path)\s*(=|$)/i;
  return [pair, ...attributes.filter((part) => part !== "" && !dropped.test(part)), ...(path === null ? [] : [`Path=${path}`])].join("; ");
}

/** Removes the preview token from a path and returns both */
export function takePreview(path: string): { token: string | undefined; path: string } {
  const at = path.indexOf("?");
  if (at < 0 || !path.includes(PREVIEW_PARAMETER, at)) return { token: undefined, path };
  const pairs = path.slice(at + 1).split("&");
  const isToken = (pair: string): boolean => pair === PREVIEW_PARAMETER || pair.startsWith(`${PREVIEW_PARAMETER}=`);
  const rest = pairs.filter((pair) => !isToken(pair)).join("&");
  return {
    token: pairs.find(isToken)?.slice(PREVIEW_PARAMETER.length + 1),
    path: path.slice(0, at) + (rest === "" ? "" : `?${rest}`),
  };
}

function pairsOf(header: string | undefined): string[] {
  return (header ?? "")
    .split(";")
    .map((pair) => pair.trim())
    .filter(Boolean);
}

function isOurs(pair: string): boolean {
  return isPreview(pair) || isUiCookie(nameOf(pair));
}

function isPreview(pair: string): boolean {
  const name = nameOf(pair);
  return name === PLAIN || name === SECURE;
}

function nameOf(pair: string): string {
  return (pair.split("=", 1)[0] ?? "").trim();
}
