// The one form of every error answer.

import { ForkdError, messageOf } from "../errors.ts";
import { problemOf } from "../manager/problem.ts";
import type { Problem } from "../api/common.ts";
import type { Route } from "../api/route.ts";
import type { Services } from "./services.ts";

/** Errors of Fastify that are the client's, by their codes */
const FROM_FASTIFY: Record<string, (message: string) => ForkdError> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () =>
    new ForkdError("UNSUPPORTED_MEDIA_TYPE", "Cannot read the body: its Content-Type is not application/json."),
  FST_ERR_CTP_BODY_TOO_LARGE: () => new ForkdError("TOO_LARGE", "Cannot read the body: it is too large."),
  FST_ERR_BAD_URL: () => new ForkdError("BAD_REQUEST", "Cannot read the URL: its escapes are malformed."),
};

/** What a server in a guest is to blame for, as often as it likes */
const OF_A_GUEST = new Set<ForkdError["code"]>(["PORT_CLOSED", "BAD_GATEWAY", "GATEWAY_TIMEOUT"]);

/** Worth another try, and when */
const RETRY_AFTER_SECS: Partial<Record<ForkdError["code"], number>> = { BUSY: 1, STOPPING: 2 };

export type ErrorAnswer = { status: number; headers: Record<string, string>; problem: Problem };

type Asked = { requestId: string; signal: AbortSignal; statusOf?: Route["statusOf"] };

/** Counts the error and, when it is a fault of ours, logs what the client is not told */
export function describeError(error: unknown, asked: Asked, services: Pick<Services, "metrics" | "log">): ErrorAnswer {
  const known = toForkdError(error, asked);
  services.metrics.failed(known.code);
  if (known.status >= 500) {
    // a guest must not fill the log
    const level = known.code === "INTERNAL" ? "error" : OF_A_GUEST.has(known.code) ? "debug" : "warn";
    services.log[level]({ err: error, request_id: asked.requestId, code: known.code }, "request failed");
  }
  const headers: Record<string, string> = {};
  if (known.code === "UNAUTHORIZED") headers["www-authenticate"] = 'Bearer realm="forkd"';
  const retryAfter = known.details?.["retry_after_secs"] ?? RETRY_AFTER_SECS[known.code];
  if (typeof retryAfter === "number") headers["retry-after"] = String(retryAfter);
  const allow = known.details?.["allow"];
  if (known.code === "METHOD_NOT_ALLOWED" && Array.isArray(allow)) headers["allow"] = allow.join(", ");
  return { status: asked.statusOf?.[known.code] ?? known.status, headers, problem: problemOf(known, asked.requestId) };
}

function toForkdError(error: unknown, asked: Asked): ForkdError {
  const { reason } = asked.signal as { reason: unknown };
  const isOurs = error instanceof ForkdError && error.code !== "CANCELLED";
  // work that was told to end says how it noticed; the answer is why it was told
  if (!isOurs && reason instanceof ForkdError) return new ForkdError(reason.code, reason.message, { cause: error });
  if (error instanceof ForkdError) return error;
  const { code, statusCode } = (error ?? {}) as { code?: unknown; statusCode?: unknown };
  const translate = typeof code === "string" ? FROM_FASTIFY[code] : undefined;
  if (translate) return translate(messageOf(error));
  if (typeof code === "string" && code.startsWith("FST_") && typeof statusCode === "number" && statusCode < 500)
    return new ForkdError("BAD_REQUEST", `Cannot read the request: ${messageOf(error)}.`);
  return new ForkdError("INTERNAL", "Cannot do this: something went wrong inside the daemon.", { cause: error });
}
