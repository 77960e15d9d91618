// Sessions of clients that speak a protocol with sessions (up to 2025-11-25): each is a connection of its own.

import { createHash, randomUUID, timingSafeEqual } from "node:crypto";
import { WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/server";
import { LimitError } from "forkd";
import { Connection } from "./owner.ts";
import { createServer } from "./server.ts";
import type { Controller } from "forkd";

const MAX_SESSIONS = 200;
/** How often it is looked which sessions are idle, for each time they may be */
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
  /** Of the token that began it: nobody else can go on with it */
  tokenHash: Buffer;
  /** Answers under way, streams included */
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

  /** A request of a session, or one that begins one */
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
      // a stream counts as use until its end
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

/** As the protocol wants it: the client begins a new one */
function gone(): Response {
  const error = { code: -32_001, message: "There is no such session: it ended, or is another token's." };
  return Response.json({ jsonrpc: "2.0", error, id: null }, { status: 404 });
}

function hashOf(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}
