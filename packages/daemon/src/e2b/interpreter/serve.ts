// Code interpreter server of a sandbox, port 49999.

import { ForkdError, type ErrorCode } from "@forkd/runtime/errors";
import { Router } from "../../dispatch/router.ts";
import { createContext, listContexts, removeContext, restartContext } from "./contexts.ts";
import { execute } from "./execute.ts";
import type { Answer } from "../../dispatch/answer.ts";
import type { SandboxWork } from "../work.ts";

type Handler = (work: SandboxWork, context: string) => Answer | Promise<Answer>;

export const interpreterRoutes: readonly [method: string, path: string, handler: Handler][] = [
  ["GET", "/health", () => text(200, "OK")],
  ["POST", "/execute", execute],
  ["GET", "/contexts", listContexts],
  ["POST", "/contexts", createContext],
  ["DELETE", "/contexts/:context", removeContext],
  ["POST", "/contexts/:context/restart", restartContext],
];

const ROUTER = new Router<Handler>();
for (const [method, path, handler] of interpreterRoutes) ROUTER.add(method, path, handler);

/** Mostly 404: clients show its text, but only the status of other errors */
const STATUS: Partial<Record<ErrorCode, number>> = {
  NOT_FOUND: 404,
  KERNEL_MISSING: 404,
  EXEC_FAILED: 404,
  BAD_REQUEST: 400,
  LIMIT_REACHED: 429,
};

export async function serveInterpreter(work: SandboxWork): Promise<Answer> {
  const { call, request } = work;
  const found = ROUTER.find(request.method ?? "GET", call.path);
  if (found) return answer(work, found.route, found.params["context"] ?? "");
  return text(404, `Cannot ${request.method} ${call.path}: the code interpreter does not have this path.`);
}

/** Clients expect the error text as the body */
async function answer(work: SandboxWork, handler: Handler, context: string): Promise<Answer> {
  try {
    return await handler(work, context);
  } catch (error) {
    const status = error instanceof ForkdError ? STATUS[error.code] : undefined;
    if (!(error instanceof ForkdError) || status === undefined) throw error;
    return text(status, error.message);
  }
}

function text(status: number, body: string): Answer {
  return { status, headers: { "content-type": "text/plain; charset=utf-8" }, body };
}
