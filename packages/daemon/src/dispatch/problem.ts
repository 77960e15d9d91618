// Conversion of errors to responses: status, headers and Problem body.

import { ForkdError, isDiskFull, type ErrorCode } from "@forkd/runtime/errors";
import { problemOf } from "../service/problem.ts";
import type { Problem } from "../api/common.ts";
import type { Route } from "../api/route.ts";
import type { Pipeline } from "./services.ts";

/** Errors that a guest's server can cause at any rate */
const OF_A_GUEST = new Set<ForkdError["code"]>(["PORT_CLOSED", "BAD_GATEWAY", "GATEWAY_TIMEOUT"]);

/** Retry-After of transient errors */
const RETRY_AFTER_SECS: Partial<Record<ForkdError["code"], number>> = { BUSY: 1, STOPPING: 2 };

/** Which sandbox has moved, and to which node. In every protocol, for gateways */
export const MOVED_HEADER = "x-forkd-moved";

export type ErrorAnswer = { status: number; headers: Record<string, string>; problem: Problem };

type Asked = { requestId: string; signal: AbortSignal; statusOf?: Route["statusOf"] | undefined };

/** E2B reports a sandbox that is not running as not found */
const GONE = new Set<string>(["VMM_EXITED", "SANDBOX_LOST", "SANDBOX_PAUSED", "SANDBOX_SUSPENDED", "AGENT_LOST"] satisfies ErrorCode[]);

export function isGone(error: { code: string }): boolean {
  return GONE.has(error.code);
}

/** Counts the error. Logs the cause of an internal error, which the response omits */
export function describeError(error: unknown, asked: Asked, services: Pick<Pipeline, "metrics" | "log">): ErrorAnswer {
  const known = toForkdError(error, asked);
  services.metrics.failed(known.code, known.details);
  if (known.status >= 500) {
    // lower log level: a guest could fill the log with these errors
    const level = known.code === "INTERNAL" ? "error" : OF_A_GUEST.has(known.code) ? "debug" : "warn";
    services.log[level]({ err: error, request_id: asked.requestId, code: known.code }, "request failed");
  }
  const headers: Record<string, string> = {};
  if (known.code === "UNAUTHORIZED") headers["www-authenticate"] = 'Bearer realm="forkd"';
  const retryAfter = known.details?.["retry_after_secs"] ?? RETRY_AFTER_SECS[known.code];
  if (typeof retryAfter === "number") headers["retry-after"] = String(retryAfter);
  const { sandbox, node } = known.details ?? {};
  if (known.code === "SANDBOX_MOVED") headers[MOVED_HEADER] = `${String(sandbox)} ${String(node)}`;
  const allow = known.details?.["allow"];
  if (known.code === "METHOD_NOT_ALLOWED" && Array.isArray(allow)) headers["allow"] = allow.join(", ");
  return { status: asked.statusOf?.[known.code] ?? known.status, headers, problem: problemOf(known, asked.requestId) };
}

function toForkdError(error: unknown, asked: Asked): ForkdError {
  const { reason } = asked.signal as { reason: unknown };
  const isOurs = error instanceof ForkdError && error.code !== "CANCELLED";
  // aborted work fails with an error of its own: respond with the reason of the abort
  if (!isOurs && reason instanceof ForkdError) return new ForkdError(reason.code, reason.message, { cause: error });
  if (error instanceof ForkdError) return error;
  if (isDiskFull(error)) return new ForkdError("NO_SPACE", "Cannot do this: the disk is full.", { cause: error });
  return new ForkdError("INTERNAL", "Cannot do this: something went wrong inside the daemon.", { cause: error });
}
