// Forwarding of one request to a guest's server, and of its response.

import { request as httpRequest, type Agent, type ClientRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { requestHeaders, responseHeaders } from "./headers.ts";
import { relay } from "../streams/relay.ts";
import type { Duplex } from "node:stream";
import type { Passage } from "../dispatch/answer.ts";
import type { OpenSandbox } from "../service/ports.ts";
import type { Takeover } from "../dispatch/upgrade.ts";
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
type Answered = { response: IncomingMessage; upgraded: { socket: Duplex; head: Buffer } | null };
type Forwarded = { status: 101; body: Takeover } | { status: number; body: Passage };

/** Rejects with BAD_GATEWAY, GATEWAY_TIMEOUT, PORT_CLOSED, or the reason why the sandbox cannot be used */
export async function forward(forwarding: Forwarding, sandbox: OpenSandbox, needs: Needs): Promise<Forwarded> {
  const { request, address, access } = forwarding;
  const { response, upgraded } = await answerOf(forwarding, sandbox, needs);
  const host = request.headers.host ?? "";
  const headers = responseHeaders(response.rawHeaders, { address, host, byToken: access.by === "token" });
  if (upgraded) return { status: 101, body: takeoverOf(upgraded, upgradeHead(response, headers, forwarding.requestId), needs) };
  return { status: response.statusCode ?? 502, body: passageOf(response, headers, needs) };
}

async function answerOf(forwarding: Forwarding, sandbox: OpenSandbox, needs: Needs): Promise<Answered> {
  const { request, isUpgrade } = forwarding;
  const mayRepeat = !isUpgrade && !hasBody(request) && REPEATABLE.has(request.method ?? "");
  const { pool } = needs;
  const target = { sandbox, guestPort: Number(forwarding.address.port), signal: needs.signal };
  const first = send(forwarding, target, isUpgrade ? pool.single : pool.agentOf(target, { mayRepeat }));
  try {
    return await answered(first, forwarding, needs).catch(async (error: unknown) => {
      // the server closed the kept-alive connection while it was idle
      if (!mayRepeat || !first.reusedSocket || !isClosed(error)) throw error;
      return answered(send(forwarding, target, pool.single), forwarding, needs);
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
  if (isUpgrade || !hasBody(request)) outgoing.end();
  else request.pipe(outgoing);
  return outgoing;
}

function answered(outgoing: ClientRequest, { address, isUpgrade }: Forwarding, { headMs }: Needs): Promise<Answered> {
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    const settle = (then: () => void): void => {
      clearTimeout(timer);
      headMs = 0;
      then();
    };
    const late = (): void =>
      void outgoing.destroy(
        new ForkdError("GATEWAY_TIMEOUT", `Cannot get an answer from port ${address.port} of the guest: none came in time.`),
      );
    // starts at the end of the request: an upload has no time limit
    outgoing.once("finish", () => (timer = headMs > 0 ? setTimeout(late, headMs) : undefined));
    outgoing.once("response", (response) => settle(() => resolve({ response, upgraded: null })));
    if (isUpgrade)
      outgoing.once("upgrade", (response, socket: Duplex, head) => settle(() => resolve({ response, upgraded: { socket, head } })));
    // not once(): later errors belong to the body and are reported there, but still need a listener
    outgoing.on("error", (error) => settle(() => reject(error)));
    // an unrequested upgrade closes the connection without another event
    outgoing.once("close", () => settle(() => reject(Object.assign(new Error("no answer"), { code: "ECONNRESET" }))));
  });
}

function passageOf(response: IncomingMessage, headers: string[], { stopping }: Needs): Passage {
  return async (to) => {
    try {
      const own = Object.entries(to.getHeaders()).flatMap(([name, value]) => [name, String(value)]);
      to.writeHead(response.statusCode ?? 502, [...headers, ...own]);
    } catch (error) {
      response.destroy();
      throw new ForkdError("BAD_GATEWAY", `Cannot forward the server's answer: ${messageOf(error)}.`, { cause: error });
    }
    // event streams do not end by themselves: end them when the daemon stops; the client reconnects
    const isEndless = response.headers["content-type"]?.startsWith("text/event-stream") === true;
    const end = (): void => {
      to.end();
      response.destroy();
    };
    if (isEndless) stopping.addEventListener("abort", end);
    await pipe(response, to);
    stopping.removeEventListener("abort", end);
  };
}

/** Resolves when the response is sent or broken off. Small responses need one write; a slow one's head is sent early */
function pipe(response: IncomingMessage, to: ServerResponse): Promise<void> {
  // without Content-Length, only the connection state shows whether the body is complete
  const { socket } = response;
  return new Promise((resolve) => {
    let hasBegun = false;
    const breakOff = (): void => {
      response.destroy();
      if (to.socket && !to.destroyed) {
        // flush the partial body first: the client must see a truncated response, not a missing one
        to.flushHeaders();
        to.socket.destroySoon();
      } else to.destroy();
      resolve();
    };
    // a side that ended before the listeners were added emits no event
    if (to.destroyed || (response.destroyed && !response.complete)) {
      breakOff();
      return;
    }
    response.on("data", (piece: Buffer) => {
      hasBegun = true;
      if (!to.write(piece)) response.pause();
    });
    to.on("drain", () => response.resume());
    response.once("end", () => (socket.errored ? breakOff() : to.end()));
    response.once("error", breakOff);
    response.once("close", () => {
      if (!response.complete && !to.writableEnded) breakOff();
    });
    to.once("close", () => {
      // after a complete response the connection is kept alive
      if (!response.complete) response.destroy();
      resolve();
    });
    setImmediate(() => {
      if (!hasBegun && !to.writableEnded) to.flushHeaders();
    });
  });
}

function takeoverOf(upgraded: { socket: Duplex; head: Buffer }, head: string, { stopping }: Needs): Takeover {
  return async (client, cut) => {
    client.socket.write(head, "latin1");
    if (upgraded.head.length > 0) client.socket.write(upgraded.head);
    if (client.head.length > 0) upgraded.socket.write(client.head);
    await relay(client.socket, upgraded.socket, { cut, stopping });
  };
}

function upgradeHead(response: IncomingMessage, headers: readonly string[], requestId: string): string {
  const all = [...headers, "Connection", "Upgrade", "Upgrade", response.headers.upgrade ?? "", "X-Request-Id", requestId];
  const lines = all.flatMap((name, at) => (at % 2 === 0 ? [`${name}: ${all[at + 1]}\r\n`] : []));
  return `HTTP/1.1 101 Switching Protocols\r\n${lines.join("")}\r\n`;
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0";
}

function isClosed(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ECONNRESET" || code === "EPIPE" || (error instanceof ForkdError && "errno" in error);
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
