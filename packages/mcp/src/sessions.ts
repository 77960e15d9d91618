// Sessions of clients with a protocol that has them (up to 2025-11-25). Each session is one connection.

import { createHash, randomUUID, timingSafeEqual } from "node:crypto";
import { WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/server";
import { LimitError } from "forkd";
import { Connection } from "./owner.ts";
import { createServer } from "./server.ts";
import type { Controller } from "forkd";

const MAX_SESSIONS = 200;
/** Checks for idle sessions per idle time-out */
const LOOKS = 4;

export type SessionsOptions = {
  version: string;
  connect: (token: string) => Promise<Controller>;
  idleSecs: number;
  leaseSecs: number;
  onError: (error: unknown) => void;
};

type Session = {
  transport: WebStandardStreamableHTTPServerTransport;
  connection: Connection;
  /** Hash of the token that began the session: requests with another token are refused */
  tokenHash: Buffer;
  /** Responses in progress, streams included */
  open: number;
  lastMs: number;
};

export class Sessions {
  readonly #opts: SessionsOptions;
  readonly #byId = new Map<string, Session>();
  readonly #closing = new Set<Promise<void>>();
  readonly #timer: NodeJS.Timeout;

  constructor(opts: SessionsOptions) {
    this.#opts = opts;
    this.#timer = setInterval(() => this.#closeIdle(), (opts.idleSecs * 1000) / LOOKS).unref();
  }

  /** Handles a request of a session, or one that begins a session */
  async handle(request: Request, token: string): Promise<Response> {
    const id = request.headers.get("mcp-session-id");
    const session = id === null ? await this.#begin(token) : this.#byId.get(id);
    if (session === undefined || !timingSafeEqual(session.tokenHash, hashOf(token))) return gone();
    session.open++;
    return this.#answerOf(session, request);
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    for (const session of this.#byId.values()) void session.transport.close().catch(this.#opts.onError);
    for (const session of this.#byId.values()) this.#end(session);
    this.#byId.clear();
    await Promise.all(this.#closing);
  }

  async #answerOf(session: Session, request: Request): Promise<Response> {
    const release = (): void => {
      session.open--;
      session.lastMs = performance.now();
    };
    try {
      const answer = await session.transport.handleRequest(request);
      if (answer.body === null) {
        release();
        return answer;
      }
      // an open stream counts as use
      const watch = { flush: release, cancel: release };
      return new Response(answer.body.pipeThrough(new TransformStream<Uint8Array, Uint8Array>(watch)), answer);
    } catch (error) {
      release();
      throw error;
    }
  }

  async #begin(token: string): Promise<Session> {
    if (this.#byId.size >= MAX_SESSIONS)
      throw new LimitError("LIMIT_REACHED", `Cannot begin a session: there are ${MAX_SESSIONS} already.`, {
        status: 503,
        hint: "End some.",
      });
    const { version, leaseSecs, onError } = this.#opts;
    const connect = async (): Promise<Controller> => this.#opts.connect(token);
    const connection = new Connection({ connect, leaseSecs, onError });
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void this.#byId.set(id, session),
      onsessionclosed: (id) => {
        this.#byId.delete(id);
        this.#end(session);
      },
    });
    const session: Session = { transport, connection, tokenHash: hashOf(token), open: 0, lastMs: performance.now() };
    await createServer({ version, connect, owner: connection }).connect(transport);
    return session;
  }

  #closeIdle(): void {
    const before = performance.now() - this.#opts.idleSecs * 1000;
    for (const [id, session] of this.#byId) {
      if (session.open > 0 || session.lastMs > before) continue;
      this.#byId.delete(id);
      void session.transport.close().catch(this.#opts.onError);
      this.#end(session);
    }
  }

  #end(session: Session): void {
    const closed = session.connection.close().finally(() => this.#closing.delete(closed));
    this.#closing.add(closed);
  }
}

/** As the protocol specifies: the client begins a new session */
function gone(): Response {
  const error = { code: -32_001, message: "There is no such session: it ended, or is another token's." };
  return Response.json({ jsonrpc: "2.0", error, id: null }, { status: 404 });
}

function hashOf(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}
