// CORS for the TCP listener: allowed origins and response headers.

import type { IncomingMessage, ServerResponse } from "node:http";

const METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE";
/** Headers that E2B's SDKs send with every request */
const OF_E2B =
  "X-API-Key, X-Access-Token, E2b-Sandbox-Id, E2b-Sandbox-Port, E2B-Traffic-Access-Token, Connect-Protocol-Version, Connect-Timeout-Ms, " +
  "Keepalive-Ping-Interval, browser, lang, lang_version, package_version, publisher, sdk_runtime, system";
const REQUEST_HEADERS = `Authorization, Content-Type, Accept, Idempotency-Key, Last-Event-ID, X-Forkd-Project, X-Forkd-Token, X-Request-Id, ${OF_E2B}`;
const ANSWER_HEADERS = "X-Request-Id, X-Next-Cursor, X-Next-Token, Retry-After, Idempotent-Replayed, X-Forkd-Error, X-Forkd-Location";
const MAX_AGE_SECS = 600;

/** Predicate for the setting `cors_origins`; null: CORS is disabled */
export function allowedOrigins(setting: string | null): ((origin: string) => boolean) | null {
  if (setting === null) return null;
  if (setting === "*") return () => true;
  const allowed = new Set(setting.split(","));
  return (origin) => allowed.has(origin);
}

/** Must run before any check that can fail: otherwise the browser hides the error response from the page */
export function allowOrigin({ headers }: IncomingMessage, response: ServerResponse, isAllowed: (origin: string) => boolean): void {
  response.setHeader("vary", "Origin");
  const { origin } = headers;
  if (origin === undefined || !isAllowed(origin)) return;
  response.setHeader("access-control-allow-origin", origin);
  response.setHeader("access-control-expose-headers", ANSWER_HEADERS);
}

/** Browsers send preflights without a token. Only allowed origins get a preflight response */
export function isPreflight({ method, headers }: IncomingMessage, response: ServerResponse): boolean {
  return (
    method === "OPTIONS" && headers["access-control-request-method"] !== undefined && response.hasHeader("access-control-allow-origin")
  );
}

export function answerPreflight(response: ServerResponse): void {
  response
    .writeHead(204, {
      "access-control-allow-methods": METHODS,
      "access-control-allow-headers": REQUEST_HEADERS,
      "access-control-max-age": String(MAX_AGE_SECS),
    })
    .end();
}
