// Pages of other origins: which may ask over TCP, and what their browsers are told.

import type { FastifyReply, FastifyRequest } from "fastify";

const METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE";
/** What E2B's SDKs send with every request */
const OF_E2B =
  "X-API-Key, X-Access-Token, E2b-Sandbox-Id, E2b-Sandbox-Port, E2B-Traffic-Access-Token, Connect-Protocol-Version, Connect-Timeout-Ms, " +
  "Keepalive-Ping-Interval, browser, lang, lang_version, package_version, publisher, sdk_runtime, system";
const REQUEST_HEADERS = `Authorization, Content-Type, Accept, Idempotency-Key, Last-Event-ID, X-Forkd-Token, X-Request-Id, ${OF_E2B}`;
const ANSWER_HEADERS = "X-Request-Id, X-Next-Cursor, X-Next-Token, Retry-After, Idempotent-Replayed, X-Forkd-Error, X-Forkd-Location";
const MAX_AGE_SECS = 600;

/** The setting as a test of one origin; null: no page of another origin may ask */
export function allowedOrigins(setting: string | null): ((origin: string) => boolean) | null {
  if (setting === null) return null;
  if (setting === "*") return () => true;
  const allowed = new Set(setting.split(","));
  return (origin) => allowed.has(origin);
}

/** Before anything can fail: a page may read why it was refused */
export function tellOrigin(request: FastifyRequest, reply: FastifyReply, isAllowed: (origin: string) => boolean): void {
  reply.header("vary", "Origin");
  const { origin } = request.headers;
  if (origin === undefined || !isAllowed(origin)) return;
  reply.header("access-control-allow-origin", origin).header("access-control-expose-headers", ANSWER_HEADERS);
}

/** What a browser asks before the request itself, and without its token; only answered to origins that may ask */
export function isPreflight(request: FastifyRequest, reply: FastifyReply): boolean {
  return (
    request.method === "OPTIONS" &&
    request.headers["access-control-request-method"] !== undefined &&
    reply.hasHeader("access-control-allow-origin")
  );
}

export function answerPreflight(reply: FastifyReply): void {
  reply
    .code(204)
    .header("access-control-allow-methods", METHODS)
    .header("access-control-allow-headers", REQUEST_HEADERS)
    .header("access-control-max-age", String(MAX_AGE_SECS))
    .send();
}
