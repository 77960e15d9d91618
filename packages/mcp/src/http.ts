// Streamable HTTP for many clients. Each request carries a token that the daemon checks; a token is kept no longer than its session.

import { createServer as createHttpServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { createMcpHandler, isLegacyRequest } from "@modelcontextprotocol/server";
import { AuthenticationError, ForkdError } from "forkd";
import { problemOf } from "./errors.ts";
import { idleOwner } from "./owner.ts";
import { createServer } from "./server.ts";
import { Sessions } from "./sessions.ts";
import { bodyOf, Guard, toRequest, writeResponse } from "./web.ts";
import type { AddressInfo, Socket } from "node:net";
import type { McpHttpHandler } from "@modelcontextprotocol/server";
import type { Controller } from "forkd";

const PATH = "/mcp";
const METHODS = new Set(["POST", "GET", "DELETE"]);
const MAX_BODY_BYTES = 4 * 1024 * 1024;

export type HttpOptions = {
  version: string;
  host: string;
  /** 0: any free port */
  port: number;
  /** Without it, plain http */
  tls?: { cert: Buffer; key: Buffer } | undefined;
  /** Host names other than its own address that requests may use */
  hosts?: string[] | undefined;
  /** A connection to the daemon with the rights of this token */
  connect: (token: string) => Promise<Controller>;
  /** Idle time after which a session ends; also that of sandboxes of clients without a session */
  idleSecs: number;
  leaseSecs: number;
  onError: (error: unknown) => void;
};

/** Serves until it is closed */
export class HttpServer implements AsyncDisposable {
  readonly #opts: HttpOptions;
  readonly #server: Server;
  readonly #sessions: Sessions;
  readonly #guard: Guard;
  readonly #connections = new Set<Socket>();
  /** For the protocol without sessions: one server per request */
  readonly #stateless: McpHttpHandler;

  private constructor(opts: HttpOptions) {
    this.#opts = opts;
    this.#sessions = new Sessions(opts);
    this.#guard = new Guard([opts.host, ...(opts.hosts ?? [])]);
    const { version, idleSecs } = opts;
    this.#stateless = createMcpHandler(
      ({ authInfo }) => createServer({ version, connect: async () => opts.connect(authInfo?.token ?? ""), owner: idleOwner(idleSecs) }),
      { legacy: "reject", onerror: opts.onError },
    );
    const listener = (request: IncomingMessage, response: ServerResponse): void => {
      this.#serve(request, response).catch((error: unknown) => {
        // the client disconnected: there is no response to send
        if (!response.destroyed) opts.onError(error);
        response.destroy();
      });
    };
    this.#server = opts.tls ? createHttpsServer(opts.tls, listener) : createHttpServer(listener);
    this.#server.on("connection", (socket: Socket) => {
      this.#connections.add(socket);
      socket.once("close", () => this.#connections.delete(socket));
    });
  }

  static async listen(opts: HttpOptions): Promise<HttpServer> {
    const server = new HttpServer(opts);
    await new Promise<void>((resolve, reject) => {
      server.#server.once("error", reject);
      server.#server.listen(opts.port, opts.host, resolve);
    });
    return server;
  }

  /** Address for clients */
  get url(): string {
    const { address, family, port } = this.#server.address() as AddressInfo;
    return `${this.#opts.tls ? "https" : "http"}://${family === "IPv6" ? `[${address}]` : address}:${port}${PATH}`;
  }

  /** Ends every session and its sandboxes */
  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    await Promise.all([this.#sessions.close(), this.#stateless.close()]);
    // closeAllConnections leaves out those in their TLS handshake, and the server would wait for them
    for (const socket of this.#connections) socket.destroy();
    await closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const gone = new AbortController();
    outgoing.once("close", () => gone.abort());
    const response = await this.#answer(incoming, gone.signal);
    await writeResponse(response, outgoing);
  }

  async #answer(incoming: IncomingMessage, gone: AbortSignal): Promise<Response> {
    const refusal = this.#guard.refusal(incoming);
    if (refusal) return refused(403, "FORBIDDEN", refusal, "Use the server's own address; name others with --allow-host.");
    if (incoming.url?.split("?", 1)[0] !== PATH)
      return refused(404, "NOT_FOUND", "There is nothing here.", `The MCP server is at ${PATH}.`);
    if (!METHODS.has(incoming.method ?? ""))
      return refused(405, "METHOD_NOT_ALLOWED", `There is no ${incoming.method} here.`, `Use ${[...METHODS].join(", ")}.`);
    const token = /^bearer +([\x21-\x7e]+) *$/i.exec(incoming.headers.authorization ?? "")?.[1];
    if (token === undefined) return unauthorized("Cannot serve this: a bearer token is required.");
    try {
      // the daemon checks the token before the body is read
      await (await this.#opts.connect(token)).version({ signal: gone });
      const body = await bodyOf(incoming, MAX_BODY_BYTES);
      if (body === undefined) return refused(413, "TOO_LARGE", "Cannot serve this: the request is too large.", "Send less.");
      return await this.#handle(toRequest(incoming, body, gone), token);
    } catch (error) {
      if (error instanceof AuthenticationError) return unauthorized(error.message);
      if (error instanceof ForkdError) return refused(error.status >= 400 ? error.status : 503, error.code, error.message, error.hint);
      throw error;
    }
  }

  async #handle(request: Request, token: string): Promise<Response> {
    if (await isLegacyRequest(request)) return this.#sessions.handle(request, token);
    return this.#stateless.fetch(request, { authInfo: { token, clientId: "forkd", scopes: [] } });
  }
}

function unauthorized(message: string): Response {
  const answer = refused(401, "UNAUTHORIZED", message, "Send a token of the daemon: forkd token create NAME.");
  answer.headers.set("www-authenticate", "Bearer");
  return answer;
}

function refused(status: number, code: string, error: string, hint: string): Response {
  return Response.json(problemOf(Object.assign(new Error(error), { code, hint })), { status });
}
