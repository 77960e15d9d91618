// Forwarding of one request to a guest's server, and of its response.

import { request as httpRequest, type Agent, type ClientRequest, type IncomingMessage } from "node:http";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { requestHeaders, responseHeaders } from "./headers.ts";
import { answered, forwardedOf, hasBody, isClosed, sendBody, type Answered, type Forwarded } from "../dispatch/upstream.ts";
import type { OpenSandbox } from "../service/ports.ts";
import type { Access } from "./access.ts";
import type { Address } from "../dispatch/target.ts";
import type { GuestTarget, ServerPool } from "./pool.ts";

const MAX_HEADER_BYTES = 64 * 1024;
/** Methods that may be sent again if a kept-alive connection turns out to be closed */
const REPEATABLE = new Set(["GET", "HEAD", "OPTIONS"]);
/** Connection errors that are passed to clients unchanged */
const ALREADY_TOLD = new Set(["PORT_CLOSED", "AGENT_LOST", "AGENT_TIMEOUT", "VMM_EXITED", "BUSY", "CANCELLED", "GATEWAY_TIMEOUT"]);

export type Forwarding = {
  request: IncomingMessage;
  /** the client requests a protocol upgrade */
  isUpgrade: boolean;
  address: Address;
  access: Access;
  requestId: string;
  remote: string | null;
  isTls: boolean;
  /** replaces the client's Host header */
  maskedHost?: string | undefined;
};

type Needs = { pool: ServerPool; headMs: number; stopping: AbortSignal; signal: AbortSignal };

/** Rejects with BAD_GATEWAY, GATEWAY_TIMEOUT, PORT_CLOSED, or the reason why the sandbox cannot be used */
export async function forward(forwarding: Forwarding, sandbox: OpenSandbox, needs: Needs): Promise<Forwarded> {
  const { request, address, access } = forwarding;
  const answer = await answerOf(forwarding, sandbox, needs);
  const host = request.headers.host ?? "";
  const headers = responseHeaders(answer.response.rawHeaders, { address, host, byToken: access.by === "token" });
  return forwardedOf(answer, headers, { requestId: forwarding.requestId, stopping: needs.stopping });
}

async function answerOf(forwarding: Forwarding, sandbox: OpenSandbox, needs: Needs): Promise<Answered> {
  const { request, isUpgrade } = forwarding;
  const mayRepeat = !isUpgrade && !hasBody(request) && REPEATABLE.has(request.method ?? "");
  const { pool, headMs } = needs;
  const late = (): ForkdError =>
    new ForkdError("GATEWAY_TIMEOUT", `Cannot get an answer from port ${forwarding.address.port} of the guest: none came in time.`);
  const waiting = { isUpgrade, headMs, late };
  const target = { sandbox, guestPort: Number(forwarding.address.port), signal: needs.signal };
  const first = send(forwarding, target, isUpgrade ? pool.single : pool.agentOf(target, { mayRepeat }));
  try {
    return await answered(first, waiting).catch(async (error: unknown) => {
      // the server closed the kept-alive connection while it was idle
      if (!mayRepeat || !first.reusedSocket || !isClosed(error)) throw error;
      return answered(send(forwarding, target, pool.single), waiting);
    });
  } catch (error) {
    throw explained(sandbox.explain(error), forwarding.address);
  }
}

function send(forwarding: Forwarding, target: GuestTarget, agent: Agent): ClientRequest {
  const { request, address, access, isUpgrade } = forwarding;
  const headers = requestHeaders(request.rawHeaders, {
    address,
    host: request.headers.host ?? "",
    maskedHost: forwarding.maskedHost,
    requestId: forwarding.requestId,
    remote: forwarding.remote,
    isTls: forwarding.isTls,
    isOurs: access.isOurs,
  });
  if (isUpgrade) headers.push("Connection", "Upgrade", "Upgrade", request.headers.upgrade ?? "");
  const outgoing = httpRequest({
    ...target,
    agent,
    method: request.method,
    path: access.path,
    headers,
    maxHeaderSize: MAX_HEADER_BYTES,
  });
  sendBody(request, outgoing, isUpgrade);
  return outgoing;
}

function explained(error: unknown, { port }: Address): unknown {
  if (error instanceof ForkdError && ALREADY_TOLD.has(error.code)) return error;
  if (error instanceof Error && error.name === "AbortError") return error;
  const { code = "" } = error as NodeJS.ErrnoException;
  const why =
    code === "HPE_HEADER_OVERFLOW"
      ? `its headers are larger than ${MAX_HEADER_BYTES} bytes`
      : code.startsWith("HPE_")
        ? "its answer is not HTTP/1.1"
        : isClosed(error)
          ? "it closed the connection without an answer"
          : messageOf(error).replace(/\.$/, "");
  return new ForkdError("BAD_GATEWAY", `Cannot get an answer from port ${port} of the guest: ${why}.`, { cause: error });
}
