// Removal of forkd's tokens from headers, cookies and queries before a guest gets them.

import type { AccessKind, Accessed } from "../store/access-tokens.ts";

/** API tokens, preview links, logins to the dashboard, and API tokens in E2B's form */
const BY_FORM = /\b(?:fk[dpu]_[\w-]{8}|e2b_[0-9a-f]{64})/;
/** Tokens of the token file have no fixed form, but at least this length and no white space */
const MIN_LENGTH = 16;
const BETWEEN = /[\s,;=&"']+/;
const BASIC = /^basic +([\w+/=-]+) *$/i;
const KINDS = ["envd", "traffic"] as const;

/** Whether the text contains a forkd token */
export type IsOurs = (text: string) => boolean;

type Known = {
  tokens: { knows(text: string): boolean };
  accessTokens: { opens(text: string, accessed: Accessed, kind: AccessKind): boolean };
};

/** @param sandbox the target; its access tokens are detected too */
export function tokenFinder({ tokens, accessTokens }: Known, sandbox: Accessed | undefined): IsOurs {
  const opens = (word: string): boolean => sandbox !== undefined && KINDS.some((kind) => accessTokens.opens(word, sandbox, kind));
  const isToken = (word: string): boolean => word.length >= MIN_LENGTH && (tokens.knows(word) || opens(word));
  const isIn = (text: string): boolean => BY_FORM.test(text) || [text, ...text.split(BETWEEN)].some(isToken);
  return (text) => isIn(text) || (text.includes("%") && isIn(unescaped(text))) || isIn(credentialsOf(text));
}

/** Path and query without parameters that contain a token */
export function withoutTokens(path: string, isOurs: IsOurs): string {
  const at = path.indexOf("?");
  if (at < 0) return path;
  const pairs = path.slice(at + 1).split("&");
  const rest = pairs.filter((pair) => !isOurs(pair));
  if (rest.length === pairs.length) return path;
  return path.slice(0, at) + (rest.length === 0 ? "" : `?${rest.join("&")}`);
}

/** User and password of Basic credentials, as words: either may be a token, and a token file's may contain a colon */
function credentialsOf(text: string): string {
  const [, encoded] = BASIC.exec(text) ?? [];
  if (encoded === undefined) return "";
  const pair = Buffer.from(encoded, "base64").toString();
  return `${pair.replace(":", " ")} ${pair.replace(/:$/, "")}`;
}

function unescaped(text: string): string {
  return text.replaceAll(/%([0-9a-f]{2})/gi, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
}
