// All errors of the SDK, and the table that maps codes to classes.

import { ERROR_STATUS } from "./error-codes.gen.ts";
import type { EvalResult, Problem } from "./schema.gen.ts";

/** The request, and its answer */
export type ErrorContext = {
  /** HTTP status; 0 when there was no answer */
  status?: number | undefined;
  /** What to do */
  hint?: string | undefined;
  /** Id of the request in the daemon's log */
  requestId?: string | undefined;
  /** Structured facts, such as free memory */
  details?: Record<string, unknown> | undefined;
  /** Seconds after which the daemon recommends another try */
  retryAfterSecs?: number | undefined;
  method?: string | undefined;
  url?: string | undefined;
  /** The answer's body */
  body?: string | undefined;
  cause?: unknown;
};

/**
 * Base of every error of this package.
 *
 * @example
 * ```ts
 * try {
 *   await sandbox.exec(["true"]);
 * } catch (error) {
 *   if (error instanceof ForkdError) console.error(error.code, error.hint, error.requestId);
 * }
 * ```
 */
export class ForkdError extends Error {
  override readonly name: string = "ForkdError";
  /** Stable code, see docs/errors.md */
  readonly code: string;
  /** HTTP status; 0 when there was no answer */
  readonly status: number;
  /** What to do */
  readonly hint: string;
  /** Id of the request in the daemon's log; empty when there was no answer */
  readonly requestId: string;
  /** Structured facts, such as free memory */
  readonly details: Record<string, unknown> | undefined;
  /** Seconds after which the daemon recommends another try */
  readonly retryAfterSecs: number | undefined;
  readonly method: string;
  readonly url: string;
  /** The answer's body; empty when there was no answer */
  readonly body: string;

  constructor(code: string, message: string, context: ErrorContext = {}) {
    super(message, context.cause === undefined ? undefined : { cause: context.cause });
    this.code = code;
    this.status = context.status ?? 0;
    this.hint = context.hint ?? "";
    this.requestId = context.requestId ?? "";
    this.details = context.details;
    this.retryAfterSecs = context.retryAfterSecs;
    this.method = context.method ?? "";
    this.url = context.url ?? "";
    this.body = context.body ?? "";
  }
}

/** The request is not valid; nothing was changed (400, 405, 413, 415, 422) */
export class InvalidRequestError extends ForkdError {
  override readonly name = "InvalidRequestError";
}

/** The token is missing, wrong, or its scope is too narrow (401, 403) */
export class AuthenticationError extends ForkdError {
  override readonly name = "AuthenticationError";
}

/** No such snapshot, sandbox, image, workspace or token (404) */
export class NotFoundError extends ForkdError {
  override readonly name = "NotFoundError";
}

/** A file operation failed in the guest; `errno` is the guest's error, such as `ENOENT` */
export class FileError extends ForkdError {
  override readonly name = "FileError";

  /** `ENOENT`, `EEXIST`, `EACCES`, `ENOSPC`, `EISDIR`, `ENOTDIR`, …; empty when the error is not one of the guest's system */
  get errno(): string {
    const errno = this.details?.["errno"];
    return typeof errno === "string" ? errno : "";
  }
}

/** It exists already, something depends on it, or its state does not allow the operation (409) */
export class ConflictError extends ForkdError {
  override readonly name = "ConflictError";
}

/** The sandbox ended or was lost (410) */
export class SandboxGoneError extends ForkdError {
  override readonly name = "SandboxGoneError";
}

/** A limit is reached or the daemon is busy: end sandboxes, or retry later (429, 503) */
export class LimitError extends ForkdError {
  override readonly name = "LimitError";
}

/** Time-out of the call (`timeoutMs`), of the code or of the guest (408, 504) */
export class TimeoutError extends ForkdError {
  override readonly name = "TimeoutError";
}

/** The daemon could not be reached, or the connection broke before the answer was complete; the code is DAEMON_UNREACHABLE */
export class ConnectionError extends ForkdError {
  override readonly name = "ConnectionError";
}

/** The code given to {@link Sandbox.eval} raised an error */
export class EvalError extends ForkdError {
  override readonly name = "EvalError";
  /** The whole result, with the output before the error */
  readonly result: EvalResult;

  constructor(result: EvalResult) {
    super("EVAL_RAISED", result.error ?? "The code raised an error.", { hint: "The traceback says where." });
    this.result = result;
  }

  /** Name of the error's class inside the guest, such as `ZeroDivisionError` */
  get errorType(): string {
    return this.result.error_type ?? "";
  }

  /** The guest's traceback */
  get traceback(): string {
    return this.result.traceback ?? "";
  }
}

type ErrorClass = new (code: string, message: string, context?: ErrorContext) => ForkdError;

/** The code decides the class; the status decides for unknown codes */
const CLASSES: { readonly [codeOrStatus: string]: ErrorClass } = {
  DAEMON_UNREACHABLE: ConnectionError,
  EXISTS: ConflictError,
  FILE_NOT_FOUND: FileError,
  FILE_EXISTS: FileError,
  FILE_DENIED: FileError,
  FILE_NO_SPACE: FileError,
  FILE_FAILED: FileError,
  LIMIT_REACHED: LimitError,
  QUOTA_EXCEEDED: LimitError,
  BUSY: LimitError,
  400: InvalidRequestError,
  401: AuthenticationError,
  403: AuthenticationError,
  404: NotFoundError,
  405: InvalidRequestError,
  408: TimeoutError,
  409: ConflictError,
  410: SandboxGoneError,
  413: InvalidRequestError,
  415: InvalidRequestError,
  422: InvalidRequestError,
  429: LimitError,
  504: TimeoutError,
};

/** The error of a known code, or of an unknown one by its status */
function errorOf(code: string, message: string, context: ErrorContext = {}): ForkdError {
  const status = context.status ?? (ERROR_STATUS as { [code: string]: number })[code] ?? 500;
  const Class = CLASSES[code] ?? CLASSES[String(status)] ?? ForkdError;
  return new Class(code, message, { ...context, status });
}

/** Fields of an error answer. A proxy may answer with any content */
export function errorOfAnswer(status: number, body: string, context: ErrorContext): ForkdError {
  const problem = parseProblem(body);
  if (problem === undefined) {
    const text = body.trim().slice(0, 500);
    return errorOf(`HTTP_${status}`, text === "" ? `The server answered with status ${status}.` : text, { ...context, status, body });
  }
  return errorOfProblem(problem, { ...context, status, body });
}

/** The error of an answer, or of a streamed line, which has no status but that of its code */
export function errorOfProblem(problem: Problem, context: ErrorContext = {}): ForkdError {
  const { code, error, hint, request_id: requestId, details } = problem;
  return errorOf(code, error, { ...context, hint, requestId: requestId || context.requestId, details });
}

function parseProblem(body: string): Problem | undefined {
  try {
    const value: unknown = JSON.parse(body);
    if (typeof value !== "object" || value === null || !("error" in value) || typeof value.error !== "string") return undefined;
    return { code: "UNKNOWN", hint: "", request_id: "", ...value, error: value.error };
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
