// The gateway's own API, asked from inside for a principal: placement, quotas, scopes, metrics and the audit log apply as
// to any other request. No port is opened: the connections are pairs of streams.

import { randomBytes } from "node:crypto";
import { request as httpRequest, type ClientRequest, type IncomingMessage, type Server } from "node:http";
import { duplexPair } from "node:stream";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { problemIn } from "./refusal.ts";
import type { Identity } from "@forkd/daemon/store/tokens";

const SECRET_BYTES = 24;
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export type Caller = { identity: Identity; remote: string };

export type Reply = { status: number; headers: IncomingMessage["headers"]; body: unknown };

type Question = { method: string; path: string; body?: unknown; signal?: AbortSignal | undefined };
type Opening = { method: string; path: string; headers?: Record<string, string>; signal?: AbortSignal | undefined };

/** A refusal of the API, as it came */
export class Refused extends Error {
  readonly status: number;
  readonly body: unknown;

  constructor({ status, body }: Pick<Reply, "status" | "body">) {
    super(problemIn(body).error);
    this.status = status;
    this.body = body;
  }

  get code(): string {
    return problemIn(this.body).code;
  }
}

export class Inner {
  readonly #callers = new Map<string, Identity>();
  #server: Server | null = null;

  /** @param server a pipeline whose tokens are those of `find`; it does not listen */
  serve(server: Server): void {
    this.#server = server;
  }

  /** Identity of a request that is under way */
  find(token: string): Identity | null {
    return this.#callers.get(token) ?? null;
  }

  /** Starts a request; the caller sends the body */
  open({ method, path, headers = {}, signal }: Opening, { identity, remote }: Caller): ClientRequest {
    const server = this.#server;
    if (!server) throw new ForkdError("STOPPING", "Cannot begin this: the gateway is stopping.");
    const secret = randomBytes(SECRET_BYTES).toString("base64url");
    this.#callers.set(secret, identity);
    const [near, far] = duplexPair();
    // each side learns that the other has gone
    near.once("close", () => far.destroy());
    far.once("close", () => near.destroy());
    far.on("error", () => far.destroy());
    server.emit("connection", Object.assign(far, { remoteAddress: remote }));
    const outgoing = httpRequest({
      createConnection: () => near,
      method,
      path,
      headers: { ...headers, host: "localhost", authorization: `Bearer ${secret}` },
      ...(signal ? { signal } : {}),
    });
    outgoing.once("close", () => this.#callers.delete(secret));
    return outgoing;
  }

  /** Whole answer, whatever its status */
  async ask({ method, path, body, signal }: Question, caller: Caller): Promise<Reply> {
    const bytes = body === undefined ? undefined : JSON.stringify(body);
    const headers: Record<string, string> =
      bytes === undefined ? {} : { "content-type": "application/json", "content-length": String(Buffer.byteLength(bytes)) };
    const outgoing = this.open({ method, path, headers, signal }, caller);
    const response = await answerTo(outgoing, () => outgoing.end(bytes));
    const text = await textOf(response);
    const isJson = response.headers["content-type"]?.startsWith("application/json") === true;
    return { status: response.statusCode ?? 502, headers: response.headers, body: isJson ? JSON.parse(text) : text };
  }

  /** Body of an answer. Throws Refused for any other than a success */
  async get<T>(question: Question, caller: Caller): Promise<T> {
    const reply = await this.ask(question, caller);
    if (reply.status >= 300) throw new Refused(reply);
    return reply.body as T;
  }
}

export function answerTo(outgoing: ClientRequest, begin: () => void): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    outgoing.once("response", resolve);
    outgoing.once("error", (error) =>
      reject(new ForkdError("BAD_GATEWAY", `The gateway gave no answer: ${messageOf(error)}.`, { cause: error })),
    );
    begin();
  });
}

async function textOf(response: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of response as AsyncIterable<Buffer>) {
    length += piece.length;
    if (length > MAX_ANSWER_BYTES) throw new ForkdError("TOO_LARGE", "The answer of the gateway is too large.");
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString();
}
