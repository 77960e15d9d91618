// What E2B's daemon inside a sandbox serves: a few paths of REST, and two services of Connect.

import { ForkdError } from "../../errors.ts";
import type { AnyAnswer } from "../../http/handler.ts";
import type { SandboxWork } from "../work.ts";

export type EnvdHandler = (work: SandboxWork) => AnyAnswer | Promise<AnyAnswer>;

const HANDLERS: Record<string, EnvdHandler> = {
  "GET /health": () => ({ status: 204 }),
};

export function serveEnvd(work: SandboxWork): AnyAnswer | Promise<AnyAnswer> {
  const { call, request } = work;
  const handler = HANDLERS[`${request.method} ${call.path}`];
  if (!handler) throw new ForkdError("NOT_FOUND", `There is nothing under ${call.path} in a sandbox.`);
  return handler(work);
}
