// Errors in the forms that E2B's SDKs parse: they read the codes in the body, not only the status.

import type { IncomingHttpHeaders } from "node:http";
import type { ErrorCode, ForkdError } from "@forkd/runtime/errors";
import { isGone, type ErrorAnswer } from "../dispatch/problem.ts";
import type { Answer } from "../dispatch/answer.ts";
import type { Call } from "../dispatch/target.ts";
import { ending, isStreamType, STREAM_TYPE } from "./envd/envelope.ts";
import { e2bId } from "../dispatch/e2b-id.ts";

const JSON_HEADERS = { "content-type": "application/json; charset=utf-8" };

/** Error codes with a different status in E2B's API */
const CONTROL_STATUS: Partial<Record<ErrorCode, number>> = {
  VMM_EXITED: 404,
  SANDBOX_LOST: 404,
  LIMIT_REACHED: 429,
  QUOTA_EXCEEDED: 429,
};

const ENVD_STATUS: Partial<Record<ErrorCode, number>> = { FILE_DENIED: 400, FILE_FAILED: 400, EXEC_FAILED: 400, FILE_EXISTS: 400 };

const CONNECT_CODES: Partial<Record<ErrorCode, string>> = {
  NOT_FOUND: "not_found",
  FILE_NOT_FOUND: "not_found",
  PROCESS_ENDED: "not_found",
  FILE_EXISTS: "already_exists",
  IN_USE: "already_exists",
  BAD_NAME: "invalid_argument",
  BAD_REQUEST: "invalid_argument",
  EXEC_FAILED: "invalid_argument",
  FILE_FAILED: "invalid_argument",
  TOO_LARGE: "invalid_argument",
  UNSUPPORTED_MEDIA_TYPE: "invalid_argument",
  STDIN_CLOSED: "failed_precondition",
  FILE_DENIED: "permission_denied",
  FORBIDDEN: "permission_denied",
  UNAUTHORIZED: "unauthenticated",
  METHOD_NOT_ALLOWED: "unimplemented",
  BUSY: "unavailable",
  QUOTA_EXCEEDED: "resource_exhausted",
  STOPPING: "unavailable",
  CANCELLED: "canceled",
};

const CONNECT_STATUS: Record<string, number> = {
  canceled: 499,
  invalid_argument: 400,
  failed_precondition: 400,
  unauthenticated: 401,
  permission_denied: 403,
  not_found: 404,
  already_exists: 409,
  unimplemented: 501,
  unavailable: 503,
  resource_exhausted: 429,
};

/** Connect error, for the end of a stream and for unary calls */
export function connectError({ code, message }: Pick<ForkdError, "code" | "message">): { code: string; message: string } {
  return { code: CONNECT_CODES[code] ?? "internal", message };
}

/**
 * Whether a failed stream must reset the connection. SDKs check whether the sandbox still exists only after the error
 * they expect: older Python SDKs (httpx) after an incomplete body, newer ones after a reset, npm's after either.
 */
export function expectsReset({ "user-agent": agent = "" }: IncomingHttpHeaders): boolean {
  return !agent.startsWith("e2b-python-sdk/");
}

/** @param sandbox id of the sandbox; null before it is resolved */
export function refusal(call: Call, sandbox: string | null, { status, headers, problem }: ErrorAnswer): Answer {
  const code = problem.code as ErrorCode;
  const answer = (own: number, body: object): Answer => ({
    status: own,
    headers: { ...headers, ...JSON_HEADERS },
    body: JSON.stringify(body),
  });
  if (call.plane === "control") {
    const own = CONTROL_STATUS[code] ?? status;
    return answer(own, { code: own, message: `${problem.error} ${problem.hint}`, error_code: code });
  }
  // the Python SDK searches for this text
  if (isGone(problem)) return answer(502, { sandboxId: e2bId(sandbox ?? ""), message: "The sandbox was not found", code: 502 });
  if (call.path.includes(".")) {
    const error = connectError({ code, message: problem.error });
    // a stream's status is always 200; the error is in the end envelope
    if (isStreamType(call.contentType)) return { status: 200, headers: { ...headers, "content-type": STREAM_TYPE }, body: ending(error) };
    return answer(CONNECT_STATUS[error.code] ?? 500, error);
  }
  const own = ENVD_STATUS[code] ?? status;
  return answer(own, { code: own, message: problem.error });
}
