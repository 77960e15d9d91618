// One request to a server inside a sandbox, and its answer on the way back.

import { request as httpRequest, type Agent, type ClientRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { ForkdError, messageOf } from "../../errors.ts";
import { requestHeaders, responseHeaders } from "./headers.ts";
import { relay } from "./relay.ts";
import type { Duplex } from "node:stream";
import type { Passage } from "../handler.ts";
import type { OpenSandbox } from "../services.ts";
import type { Takeover } from "../upgrade.ts";
import type { Access } from "./access.ts";
import type { Address } from "./address.ts";
import type { GuestTarget, ServerPool } from "./pool.ts";

const MAX_HEADER_BYTES = 64 * 1024;
/** May be sent a second time when a kept connection turns out to be closed */
const REPEATABLE = new Set(["GET", "HEAD", "OPTIONS"]);
/** What may have happened to a connection, as it is told to clients */
const ALREADY_TOLD = new Set(["PORT_CLOSED", "AGENT_LOST", "AGENT_TIMEOUT", "VMM_EXITED", "BUSY", "CANCELLED", "GATEWAY_TIMEOUT"]);

export type Exchange = {
  request: IncomingMessage;
  /** the client wants the connection for something else */
  isUpgrade: boolean;
  address: Address;
  access: Access;
  requestId: string;
  remote: string | null;
  isTls: boolean;
};

type Needs = { pool: ServerPool; headMs: number; stopping: AbortSignal; signal: AbortSignal };
type Answered = { response: IncomingMessage; upgraded: { socket: Duplex; head: Buffer } | null };
type Forwarded = { status: 101; body: Takeover } | { status: number; body: Passage };

/** Rejects with BAD_GATEWAY, GATEWAY_TIMEOUT, PORT_CLOSED or why the sandbox cannot be used */
export async function forward(exchange: Exchange, sandbox: OpenSandbox, needs: Needs): Promise<Forwarded> {
  const { request, address, access } = exchange;
  const { response, upgraded } = await answerOf(exchange, sandbox, needs);
  const host = request.headers.host ?? "";
  const headers = responseHeaders(response.rawHeaders, { address, host, byToken: access.by === "token" });
  if (upgraded) return { status: 101, body: takeoverOf(upgraded, upgradeHead(response, headers, exchange.requestId), needs) };
  return { status: response.statusCode ?? 502, body: passageOf(response, headers, needs) };
}

async function answerOf(exchange: Exchange, sandbox: OpenSandbox, needs: Needs): Promise<Answered> {
  const { request, isUpgrade } = exchange;
  const mayRepeat = !isUpgrade && !hasBody(request) && REPEATABLE.has(request.method ?? "");
  const { pool } = needs;
  const target = { sandbox, guestPort: Number(exchange.address.port), signal: needs.signal };
  const first = send(exchange, target, isUpgrade ? pool.single : pool.agentOf(target, { mayRepeat }));
  try {
    return await answered(first, exchange, needs).catch(async (error: unknown) => {
      // the server closed it while nobody used it
      if (!mayRepeat || !first.reusedSocket || !isClosed(error)) throw error;
      return answered(send(exchange, target, pool.single), exchange, needs);
    });
  } catch (error) {
    throw explained(sandbox.explain(error), exchange.address);
  }
}

function send(exchange: Exchange, target: GuestTarget, agent: Agent): ClientRequest {
  const { request, address, access, isUpgrade } = exchange;
  const headers = requestHeaders(request.rawHeaders, {
    address,
    host: request.headers.host ?? "",
    requestId: exchange.requestId,
    remote: exchange.remote,
    isTls: exchange.isTls,
    passesAuthorization: access.passesAuthorization,
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

function answered(outgoing: ClientRequest, { address, isUpgrade }: Exchange, { headMs }: Needs): Promise<Answered> {
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
    // from the end of the request on: an upload may take as long as it needs
    outgoing.once("finish", () => (timer = headMs > 0 ? setTimeout(late, headMs) : undefined));
    outgoing.once("response", (response) => settle(() => resolve({ response, upgraded: null })));
    if (isUpgrade)
      outgoing.once("upgrade", (response, socket: Duplex, head) => settle(() => resolve({ response, upgraded: { socket, head } })));
    // stays: after the answer, an error is that of its body, and told there
    outgoing.on("error", (error) => settle(() => reject(error)));
    // an upgrade that nobody asked for ends the connection without a word
    outgoing.once("close", () => settle(() => reject(Object.assign(new Error("no answer"), { code: "ECONNRESET" }))));
  });
}

function passageOf(response: IncomingMessage, headers: string[], { stopping }: Needs): Passage {
  return async (to, own) => {
    try {
      to.writeHead(response.statusCode ?? 502, [...headers, ...Object.entries(own).flatMap(([name, value]) => [name, String(value)])]);
    } catch (error) {
      response.destroy();
      throw new ForkdError("BAD_GATEWAY", `Cannot pass the server's answer on: ${messageOf(error)}.`, { cause: error });
    }
    // one that never ends by itself: its client comes back when the daemon does
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

/** Resolves when the answer is out, or cut off on either side. A small one goes out in one piece, the head of a slow one at once */
function pipe(response: IncomingMessage, to: ServerResponse): Promise<void> {
  // of one without a length, only the connection knows whether it came to its end
  const { socket } = response;
  return new Promise((resolve) => {
    let hasBegun = false;
    const breakOff = (): void => {
      response.destroy();
      if (to.socket && !to.destroyed) {
        // what came goes out first: the client is to see an answer that breaks off, not a daemon that does not answer
        to.flushHeaders();
        to.socket.destroySoon();
      } else to.destroy();
      resolve();
    };
    // either may have ended before anybody listened, and says nothing any more
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
      // of one that was read whole the connection is kept
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
        ? "what it sent is no HTTP/1.1"
        : isClosed(error)
          ? "it closed the connection without one"
          : messageOf(error).replace(/\.$/, "");
  return new ForkdError("BAD_GATEWAY", `Cannot get an answer from port ${port} of the guest: ${why}.`, { cause: error });
}
