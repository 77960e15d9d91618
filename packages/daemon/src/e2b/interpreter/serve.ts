// The code interpreter's server inside a sandbox, on port 49999.

import { ForkdError, type ErrorCode } from "../../errors.ts";
import { createContext, listContexts, removeContext, restartContext } from "./contexts.ts";
import { execute } from "./execute.ts";
import type { AnyAnswer } from "../../http/handler.ts";
import type { SandboxWork } from "../work.ts";

type Handler = (work: SandboxWork, context: string) => AnyAnswer | Promise<AnyAnswer>;

const HANDLERS: [method: string, path: RegExp, handler: Handler][] = [
  ["GET", /^\/health$/, () => text(200, "OK")],
  ["POST", /^\/execute$/, execute],
  ["GET", /^\/contexts$/, listContexts],
  ["POST", /^\/contexts$/, createContext],
  ["DELETE", /^\/contexts\/([^/]+)$/, removeContext],
  ["POST", /^\/contexts\/([^/]+)\/restart$/, restartContext],
];

/** Of a 404 clients show the text, of others only the number */
const STATUS: Partial<Record<ErrorCode, number>> = {
  NOT_FOUND: 404,
  KERNEL_MISSING: 404,
  EXEC_FAILED: 404,
  BAD_REQUEST: 400,
  LIMIT_REACHED: 429,
};

export async function serveInterpreter(work: SandboxWork): Promise<AnyAnswer> {
  const { call, request } = work;
  for (const [method, path, handler] of HANDLERS) {
    const match = method === request.method ? path.exec(call.path) : null;
    if (match) return answer(work, handler, match[1] ?? "");
  }
  return text(404, `Cannot ${request.method} ${call.path}: the code interpreter has nothing there.`);
}

/** Its clients take the body of an error for its text */
async function answer(work: SandboxWork, handler: Handler, context: string): Promise<AnyAnswer> {
  try {
    return await handler(work, context);
  } catch (error) {
    const status = error instanceof ForkdError ? STATUS[error.code] : undefined;
    if (!(error instanceof ForkdError) || status === undefined) throw error;
    return text(status, error.message);
  }
}

function text(status: number, body: string): AnyAnswer {
  return { status, headers: { "content-type": "text/plain; charset=utf-8" }, body };
}
