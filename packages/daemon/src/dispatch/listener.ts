// HTTP server set-up, and error responses for malformed HTTP.

import { createServer, IncomingMessage, ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { randomUUID } from "node:crypto";
import { ForkdError } from "@forkd/runtime/errors";
import { problemOf } from "../service/problem.ts";
import type { Server } from "node:http";
import type { Socket } from "node:net";
import type { Limits } from "../streams/limits.ts";
import type { Target } from "./target.ts";
import type { Upgrade } from "./upgrade.ts";

const MAX_HEADER_BYTES = 16 * 1024;
const MAX_HEADERS = 100;
const KEEP_ALIVE_MS = 75_000;
const DEAD_PEER_MS = 60_000;
const STATUS_TEXT: Record<number, string> = { 400: "Bad Request", 408: "Request Timeout", 413: "Content Too Large" };

export type Tls = { cert: Buffer; key: Buffer };

/** IncomingMessage with its dispatch target */
export class Incoming extends IncomingMessage {
  /** computed on first use: by the listener for an upgrade, otherwise by the dispatcher */
  target: Target | undefined;
  /** undefined: the connection stays HTTP */
  upgraded: Upgrade | undefined;
}

export type Listener = (request: Incoming, response: ServerResponse) => void;

export type ListenerOptions = { limits: Limits; tls: Tls | null; mayUpgrade: (request: Incoming) => boolean };

export function createListener(listener: Listener, { limits, tls, mayUpgrade }: ListenerOptions): Server {
  const options = {
    IncomingMessage: Incoming,
    maxHeaderSize: MAX_HEADER_BYTES,
    // the dispatcher responds with a Problem instead
    requireHostHeader: false,
    headersTimeout: limits.headersMs,
    // uploads can take any time; the body readers have their own timeouts
    requestTimeout: 0,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: Math.min(1000, limits.headersMs),
    noDelay: true,
    // TCP keep-alive: otherwise a vanished client is never detected
    keepAlive: true,
    keepAliveInitialDelay: DEAD_PEER_MS,
    // the two directions of an upgraded connection close independently
    allowHalfOpen: true,
    // false: Node ignores the Upgrade header and handles an ordinary request
    shouldUpgradeCallback: mayUpgrade,
  };
  const server = tls ? createTlsServer({ ...options, ...tls, minVersion: "TLSv1.2" }, listener) : createServer(options, listener);
  server.maxHeadersCount = MAX_HEADERS;
  // connections over the limit are closed: each needs memory and a file descriptor, which the VMs need too
  server.maxConnections = limits.connections;
  // a client may close its sending side after the request and still read the response
  (server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true;
  // without these listeners Node responds itself, and the audit log misses the request. RFC 9110 allows ignoring Expect
  server.on("checkExpectation", listener);
  server.on("connect", (request: Incoming, socket: Socket) => pass(request, socket, listener));
  server.on("upgrade", (request: Incoming, socket: Socket, head: Buffer) => {
    request.upgraded = { request, socket, head };
    pass(request, socket, listener);
  });
  server.on("clientError", refuse);
  return server;
}

type Answering = Socket & { _httpMessage?: (ServerResponse & { req: IncomingMessage }) | null };

/** Error response for malformed HTTP: either no request was parsed yet, or a request is waiting for its body */
function refuse(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === "ECONNRESET" || !socket.writable || hasAnswered(socket)) {
    socket.destroy();
    return;
  }
  const known = explain(error);
  const { _httpMessage: response } = socket as Answering;
  const id = String(response?.getHeader("x-request-id") ?? randomUUID());
  const body = JSON.stringify(problemOf(known, id));
  if (response) {
    // malformed body: respond through the request, so that the audit log records it
    const headers = { "content-type": "application/json; charset=utf-8", "content-length": Buffer.byteLength(body), connection: "close" };
    // destroy the request: otherwise the body reader waits for the rest
    response.writeHead(known.status, headers).end(body, () => response.req.destroy());
    return;
  }
  socket.end(
    `HTTP/1.1 ${known.status} ${STATUS_TEXT[known.status]}\r\nContent-Type: application/json; charset=utf-8\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nX-Request-Id: ${id}\r\nConnection: close\r\n\r\n${body}`,
    () => socket.destroy(),
  );
}

/** Creates the response object for CONNECT and upgrade requests, for which Node provides none */
function pass(request: Incoming, socket: Socket, listener: Listener): void {
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  // Node has removed its listeners: an unhandled socket error would end the process
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

/** Whether a response is being written on this connection; other bytes would corrupt it */
function hasAnswered(socket: Socket): boolean {
  const { _httpMessage: message } = socket as Answering;
  // a parse error during the body belongs to the current request, afterwards to the next one
  return message !== undefined && message !== null && (message.headersSent || message.req.complete);
}
