// The servers of node under Fastify, and what they answer to those who do not speak HTTP.

import { createServer, ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { randomUUID } from "node:crypto";
import { ForkdError } from "../errors.ts";
import { problemOf } from "../manager/problem.ts";
import { rememberUpgrade } from "./upgrade.ts";
import type { IncomingMessage, RequestListener, Server } from "node:http";
import type { Socket } from "node:net";
import type { Limits } from "./services.ts";

const MAX_HEADER_BYTES = 16 * 1024;
const MAX_HEADERS = 100;
const KEEP_ALIVE_MS = 75_000;
const DEAD_PEER_MS = 60_000;
const STATUS_TEXT: Record<number, string> = { 400: "Bad Request", 408: "Request Timeout", 413: "Content Too Large" };

export type Tls = { cert: Buffer; key: Buffer };

export type ListenerOptions = { limits: Limits; tls: Tls | null; mayUpgrade: (request: IncomingMessage) => boolean };

export function createListener(listener: RequestListener, { limits, tls, mayUpgrade }: ListenerOptions): Server {
  const options = {
    maxHeaderSize: MAX_HEADER_BYTES,
    // refused by us, in our form
    requireHostHeader: false,
    headersTimeout: limits.headersMs,
    // no limit for the whole of a request: uploads have any size. Bodies are timed where they are read
    requestTimeout: 0,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: Math.min(1000, limits.headersMs),
    noDelay: true,
    // of a client that is gone without a word nobody would ever hear
    keepAlive: true,
    keepAliveInitialDelay: DEAD_PEER_MS,
    // each direction of an upgraded connection ends by itself
    allowHalfOpen: true,
    // elsewhere an upgrade is an offer that we do not take, and the request an ordinary one
    shouldUpgradeCallback: mayUpgrade,
  };
  const server = tls ? createTlsServer({ ...options, ...tls, minVersion: "TLSv1.2" }, listener) : createServer(options, listener);
  server.maxHeadersCount = MAX_HEADERS;
  // a client may close its sending side once its request is out; it still gets its answer
  (server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true;
  // these two node would answer by itself, and nobody would write it down; an expectation may be ignored
  server.on("checkExpectation", listener);
  server.on("connect", (request: IncomingMessage, socket: Socket) => pass(request, socket, listener));
  server.on("upgrade", (request: IncomingMessage, socket: Socket, head: Buffer) => {
    rememberUpgrade({ request, socket, head });
    pass(request, socket, listener);
  });
  return server;
}

type Answering = Socket & { _httpMessage?: (ServerResponse & { req: IncomingMessage }) | null };

/** Without Fastify, which has no request for it or waits for the rest of it */
export function refuse(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === "ECONNRESET" || !socket.writable || hasAnswered(socket)) {
    socket.destroy();
    return;
  }
  const known = explain(error);
  const { _httpMessage: response } = socket as Answering;
  const id = String(response?.getHeader("x-request-id") ?? randomUUID());
  const body = JSON.stringify(problemOf(known, id));
  if (response) {
    // a request whose body is at fault: its own answer, so that it is written down as what it is
    const headers = { "content-type": "application/json; charset=utf-8", "content-length": Buffer.byteLength(body), connection: "close" };
    // with the connection goes the request, else whoever reads its body would wait for the rest
    response.writeHead(known.status, headers).end(body, () => response.req.destroy());
    return;
  }
  socket.end(
    `HTTP/1.1 ${known.status} ${STATUS_TEXT[known.status]}\r\nContent-Type: application/json; charset=utf-8\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nX-Request-Id: ${id}\r\nConnection: close\r\n\r\n${body}`,
    () => socket.destroy(),
  );
}

/** CONNECT, which no path takes, and upgrades: node leaves the answer to us, and it goes the way of all others */
function pass(request: IncomingMessage, socket: Socket, listener: RequestListener): void {
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  // node has let go of the connection, and nobody else hears of its end
  socket.on("error", () => socket.destroy());
  response.once("finish", () => socket.end());
  listener(request, response);
}

function explain(error: NodeJS.ErrnoException): ForkdError {
  if (error.code === "ERR_HTTP_REQUEST_TIMEOUT")
    return new ForkdError("REQUEST_TIMEOUT", "Cannot read the request: it did not arrive in time.");
  if (error.code === "HPE_HEADER_OVERFLOW")
    return new ForkdError("TOO_LARGE", `Cannot read the request: its headers are larger than ${MAX_HEADER_BYTES} bytes.`);
  return new ForkdError("BAD_REQUEST", "Cannot read the request: it is not HTTP/1.1.");
}

/** Whether an answer is under way on this connection, into which nothing else may be written */
function hasAnswered(socket: Socket): boolean {
  const { _httpMessage: message } = socket as Answering;
  // a fault in a body is the fault of the request that is being answered; after its end it is that of another one
  return message !== undefined && message !== null && (message.headersSent || message.req.complete);
}
