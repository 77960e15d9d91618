// Cookies on their way through the proxy: ours stays here, the guests' stay with their guest.

/** Under TLS the prefix keeps pages of other hosts from setting it */
const PLAIN = "forkd_preview";
const SECURE = `__Host-${PLAIN}`;
/** The parameter of a link that becomes the cookie */
export const PREVIEW_PARAMETER = PLAIN;
/** Pages of other hosts may have set some of the same name; more than this nobody looks at */
const MAX_COOKIES = 8;

export function previewCookies(header: string | undefined): string[] {
  return pairsOf(header)
    .filter(isOurs)
    .slice(0, MAX_COOKIES)
    .map((pair) => pair.slice(pair.indexOf("=") + 1));
}

/** The header without our cookie; undefined: nothing is left of it */
export function withoutOurs(header: string): string | undefined {
  const pairs = pairsOf(header);
  const rest = pairs.filter((pair) => !isOurs(pair));
  if (rest.length === pairs.length) return header;
  return rest.length === 0 ? undefined : rest.join("; ");
}

export function previewCookie(token: string, opts: { maxAgeSecs: number; isSecure: boolean }): string {
  const name = opts.isSecure ? SECURE : PLAIN;
  return `${name}=${token}; Path=/; HttpOnly; SameSite=Lax; Max-Age=${opts.maxAgeSecs}${opts.isSecure ? "; Secure" : ""}`;
}

/** A cookie that a guest sets, confined to the host it came from, or to a path of it; null: it has the name of ours */
export function confined(header: string, path: string | null): string | null {
  const [pair = "", ...attributes] = header.split(";").map((part) => part.trim());
  if (isOurs(pair)) return null;
  const dropped = path === null ? /^domain\s*(=|$)/i : /^(domain|path)\s*(=|$)/i;
  return [pair, ...attributes.filter((part) => part !== "" && !dropped.test(part)), ...(path === null ? [] : [`Path=${path}`])].join("; ");
}

/** Takes the token of a link out of a path */
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
  const [name = ""] = pair.split("=", 1);
  return name.trim() === PLAIN || name.trim() === SECURE;
}
