// Errors of ours in the shapes that E2B's SDKs read: they look at the numbers in the body, not only at the status.

import type { ErrorCode, ForkdError } from "../errors.ts";
import type { ErrorAnswer } from "../http/problem.ts";
import type { AnyAnswer } from "../http/handler.ts";
import type { Call } from "./call.ts";
import { ending, isStreamType, STREAM_TYPE } from "./envd/envelope.ts";
import { e2bId } from "./ids.ts";

const JSON_HEADERS = { "content-type": "application/json" };

/** Where E2B's API has another status than ours */
const CONTROL_STATUS: Partial<Record<ErrorCode, number>> = {
  VMM_EXITED: 404,
  SANDBOX_LOST: 404,
  LIMIT_REACHED: 429,
};

/** A sandbox that does not run is, to its clients, one that is not there */
const GONE = new Set<string>(["VMM_EXITED", "SANDBOX_LOST", "SANDBOX_PAUSED", "SANDBOX_SUSPENDED", "AGENT_LOST"] satisfies ErrorCode[]);

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
};

/** What an error is called at the end of a stream, and in the answer to a call that has no stream */
export function connectError({ code, message }: Pick<ForkdError, "code" | "message">): { code: string; message: string } {
  return { code: CONNECT_CODES[code] ?? "internal", message };
}

export function isGone(error: { code: string }): boolean {
  return GONE.has(error.code);
}

export function refusal(
  call: Call,
  { status, headers, problem }: ErrorAnswer,
): AnyAnswer & { status: number; headers: Record<string, string> } {
  const code = problem.code as ErrorCode;
  const answer = (own: number, body: object): ReturnType<typeof refusal> => ({
    status: own,
    headers: { ...headers, ...JSON_HEADERS },
    body: JSON.stringify(body),
  });
  if (call.plane === "control") {
    const own = CONTROL_STATUS[code] ?? status;
    return answer(own, { code: own, message: `${problem.error} ${problem.hint}`, error_code: code });
  }
  // the words are looked for by Python's SDK
  if (isGone(problem)) return answer(502, { sandboxId: e2bId(call.id ?? ""), message: "The sandbox was not found", code: 502 });
  if (call.path.includes(".")) {
    const error = connectError({ code, message: problem.error });
    // of a stream, the status says only that there is one
    if (isStreamType(call.contentType)) return { status: 200, headers: { ...headers, "content-type": STREAM_TYPE }, body: ending(error) };
    return answer(CONNECT_STATUS[error.code] ?? 500, error);
  }
  const own = ENVD_STATUS[code] ?? status;
  return answer(own, { code: own, message: problem.error });
}
