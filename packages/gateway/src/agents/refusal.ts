// Refusals in Kubernetes' form: a Status object.

import { ForkdError, type ErrorCode } from "@forkd/runtime/errors";
import { isRecord } from "./objects.ts";
import type { Problem } from "@forkd/daemon/api/common";

/** One field that is refused, and why */
export type Cause = { field: string; message: string };

type Reason = { code: number; reason: string; as: ErrorCode };

const REASONS = {
  Invalid: { code: 422, reason: "Invalid", as: "BAD_REQUEST" },
  BadRequest: { code: 400, reason: "BadRequest", as: "BAD_REQUEST" },
  Unauthorized: { code: 401, reason: "Unauthorized", as: "UNAUTHORIZED" },
  NotFound: { code: 404, reason: "NotFound", as: "NOT_FOUND" },
  MethodNotAllowed: { code: 405, reason: "MethodNotAllowed", as: "METHOD_NOT_ALLOWED" },
  AlreadyExists: { code: 409, reason: "AlreadyExists", as: "EXISTS" },
  Conflict: { code: 409, reason: "Conflict", as: "IN_USE" },
  Expired: { code: 410, reason: "Expired", as: "BAD_REQUEST" },
  UnsupportedMediaType: { code: 415, reason: "UnsupportedMediaType", as: "UNSUPPORTED_MEDIA_TYPE" },
} as const satisfies Record<string, Reason>;

/** Codes of forkd whose meaning in Kubernetes is not that of their HTTP status */
const BY_CODE: Partial<Record<string, { code: number; reason: string }>> = {
  EXISTS: REASONS.AlreadyExists,
  // as a ResourceQuota: a client must not repeat the request by itself
  QUOTA_EXCEEDED: { code: 403, reason: "Forbidden" },
  LIMIT_REACHED: { code: 503, reason: "ServiceUnavailable" },
  BAD_NAME: REASONS.Invalid,
};

const BY_STATUS: Record<number, string> = {
  400: "BadRequest",
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  405: "MethodNotAllowed",
  409: "Conflict",
  410: "Gone",
  413: "RequestEntityTooLarge",
  415: "UnsupportedMediaType",
  422: "Invalid",
  429: "TooManyRequests",
  503: "ServiceUnavailable",
  504: "Timeout",
};

export type Status = {
  kind: "Status";
  apiVersion: "v1";
  metadata: Record<string, never>;
  status: "Success" | "Failure";
  message?: string;
  reason?: string;
  details?: Record<string, unknown>;
  code: number;
};

export function refusal(reason: keyof typeof REASONS, message: string, causes: readonly Cause[] = []): ForkdError {
  return new ForkdError(REASONS[reason].as, message, { hint: "", details: { kubernetes: reason, causes } });
}

/** A request with fields that cannot be accepted; each is named */
export function invalid(what: string, causes: readonly Cause[]): ForkdError {
  const named = causes.map(({ field, message }) => `${field}: ${message}`).join("; ");
  return refusal("Invalid", `${what} is invalid: ${named}`, causes);
}

export function failureOf(error: ForkdError): Status {
  const own = error.details?.["kubernetes"];
  if (typeof own === "string" && Object.hasOwn(REASONS, own)) {
    const { code, reason } = REASONS[own as keyof typeof REASONS];
    const causes = error.details?.["causes"] as readonly Cause[];
    const details = { causes: causes.map((cause) => ({ reason: "FieldValueForbidden", ...cause })) };
    return failure(code, reason, error.message, causes.length > 0 ? details : undefined);
  }
  const { code, hint, message, status } = error;
  return failureOfProblem({ code, error: message, hint, request_id: "" }, status);
}

/** A refusal of forkd's own API */
export function failureOfProblem({ code, error, hint }: Problem, status: number): Status {
  const known = BY_CODE[code] ?? { code: status, reason: BY_STATUS[status] ?? (status >= 500 ? "InternalError" : "BadRequest") };
  const message = hint === "" ? error : `${error} ${hint}`;
  // the code of forkd, for programs
  return failure(known.code, known.reason, message, { causes: [{ reason: code, message: error }] });
}

export function success(details: Record<string, unknown>): Status {
  return { kind: "Status", apiVersion: "v1", metadata: {}, status: "Success", details, code: 200 };
}

/** Of an answer of forkd's API; other bodies are of servers between */
export function problemIn(body: unknown): Problem {
  if (isRecord(body) && typeof body["error"] === "string" && typeof body["code"] === "string") return { hint: "", ...body } as Problem;
  return { error: "The node gave no answer that can be read.", code: "BAD_GATEWAY", hint: "", request_id: "" };
}

function failure(code: number, reason: string, message: string, details?: Record<string, unknown>): Status {
  return { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", message, reason, ...(details ? { details } : {}), code };
}
