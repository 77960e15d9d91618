// Every error the SDK throws, and the one table that chooses its class.

import { ERROR_STATUS } from "./error-codes.gen.ts";
import type { EvalResult, Problem } from "./schema.gen.ts";

/** Where a request went and what came back */
export type ErrorContext = {
  /** HTTP status; 0 when there was no answer */
  status?: number | undefined;
  /** What to do */
  hint?: string | undefined;
  /** Names the request in the daemon's log */
  requestId?: string | undefined;
  /** Facts for programs, such as what is free */
  details?: Record<string, unknown> | undefined;
  /** When another try makes sense */
  retryAfterSecs?: number | undefined;
  method?: string | undefined;
  url?: string | undefined;
  /** The answer as it came */
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
  /** Names the request in the daemon's log; empty when there was no answer */
  readonly requestId: string;
  /** Facts for programs, such as what is free */
  readonly details: Record<string, unknown> | undefined;
  /** When the daemon says that another try makes sense */
  readonly retryAfterSecs: number | undefined;
  readonly method: string;
  readonly url: string;
  /** The answer as it came; empty when there was none */
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

/** There is no token, a wrong one, or one whose scope is too narrow (401, 403) */
export class AuthenticationError extends ForkdError {
  override readonly name = "AuthenticationError";
}

/** There is no such snapshot, sandbox, image, workspace or token (404) */
export class NotFoundError extends ForkdError {
  override readonly name = "NotFoundError";
}

/** The guest could not do that with a file; `errno` is what its system said, such as `ENOENT` */
export class FileError extends ForkdError {
  override readonly name = "FileError";

  /** `ENOENT`, `EEXIST`, `EACCES`, `ENOSPC`, `EISDIR`, `ENOTDIR`, …; empty when it was not the system that refused */
  get errno(): string {
    const errno = this.details?.["errno"];
    return typeof errno === "string" ? errno : "";
  }
}

/** It exists already, something needs it, or its state does not allow this (409) */
export class ConflictError extends ForkdError {
  override readonly name = "ConflictError";
}

/** The sandbox ended or was lost (410) */
export class SandboxGoneError extends ForkdError {
  override readonly name = "SandboxGoneError";
}

/** A limit is reached or the daemon is busy: end sandboxes, or wait (429, 503) */
export class LimitError extends ForkdError {
  override readonly name = "LimitError";
}

/** Too slow: the call's own `timeoutMs`, the code's or the guest's (408, 504) */
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
  /** The whole result, with what was printed before the error */
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

/** A code is looked up before its status */
const CLASSES: { readonly [codeOrStatus: string]: ErrorClass } = {
  DAEMON_UNREACHABLE: ConnectionError,
  EXISTS: ConflictError,
  FILE_NOT_FOUND: FileError,
  FILE_EXISTS: FileError,
  FILE_DENIED: FileError,
  FILE_NO_SPACE: FileError,
  FILE_FAILED: FileError,
  LIMIT_REACHED: LimitError,
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

/** The error of a code the daemon knows, or of an unknown one by its status */
function errorOf(code: string, message: string, context: ErrorContext = {}): ForkdError {
  const status = context.status ?? (ERROR_STATUS as { [code: string]: number })[code] ?? 500;
  const Class = CLASSES[code] ?? CLASSES[String(status)] ?? ForkdError;
  return new Class(code, message, { ...context, status });
}

/** What an error answer says; a proxy in between may answer with anything */
export function errorOfAnswer(status: number, body: string, context: ErrorContext): ForkdError {
  const problem = parseProblem(body);
  if (problem === undefined) {
    const text = body.trim().slice(0, 500);
    return errorOf(`HTTP_${status}`, text === "" ? `The server answered with status ${status}.` : text, { ...context, status, body });
  }
  return errorOfProblem(problem, { ...context, status, body });
}

/** A problem from an answer or from a line of one, where there is no status but the code's own */
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
