// The parts that need Node: requests to a guest's server over a Unix socket, and TCP connections. Loaded on first use.

import { request as httpRequest, type ClientRequest, type IncomingMessage, type RequestOptions } from "node:http";
import { request as httpsRequest } from "node:https";
import { Readable, type Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import type { Target } from "./target.ts";

export type { Duplex } from "node:stream";

/** Status and body of a refusal */
export type Refused = { status: number; body: string; requestId: string | undefined };

/** `fetch` over a Unix socket. Statuses that have no body have none here either */
export async function unixFetch(socketPath: string, request: Request, path: string, isStream: boolean): Promise<Response> {
  const headers: Record<string, string> = { host: "forkd", ...Object.fromEntries(request.headers) };
  const bytes = request.body === null || isStream ? undefined : new Uint8Array(await request.arrayBuffer());
  const outgoing = httpRequest({ socketPath, path, method: request.method, headers, signal: request.signal });
  const answer = answerOf(outgoing);
  if (request.body === null || bytes !== undefined) outgoing.end(bytes);
  else
    // the types of browsers and of Node describe the same streams differently
    Readable.fromWeb(request.body as never)
      .on("error", (error) => outgoing.destroy(error))
      .pipe(outgoing);
  const response = await answer;
  const { statusCode: status = 0 } = response;
  const isEmpty = [101, 204, 205, 304].includes(status) || request.method === "HEAD";
  if (isEmpty) response.resume();
  const pairs = response.rawHeaders.flatMap((name, at): [string, string][] =>
    at % 2 === 0 ? [[name, response.rawHeaders[at + 1] ?? ""]] : [],
  );
  const body = isEmpty ? null : (Readable.toWeb(response) as never);
  return new Response(body, { status, headers: new Headers(pairs) });
}

/** A connection that was upgraded to the byte stream of a guest's server */
export function openConnection(
  target: Target,
  path: string,
  opts: { headers: Record<string, string>; signal: AbortSignal },
): Promise<Duplex | Refused> {
  const url = target.kind === "url" ? new URL(target.url) : undefined;
  const options: RequestOptions & { allowHalfOpen: boolean } = {
    path: (url?.pathname.replace(/\/$/, "") ?? "") + path,
    headers: { host: url?.host ?? "forkd", connection: "Upgrade", upgrade: "tcp", ...opts.headers },
    // not pooled: each direction ends separately
    agent: false,
    allowHalfOpen: true,
    ...(target.kind === "unix" ? { socketPath: target.socket } : {}),
  };
  const send = url?.protocol === "https:" ? httpsRequest : httpRequest;
  const outgoing = url ? send(url, options) : send(options);
  const abort = (): void => void outgoing.destroy(opts.signal.reason as Error);
  opts.signal.addEventListener("abort", abort, { once: true });
  return new Promise<Duplex | Refused>((resolve, reject) => {
    outgoing.on("error", reject);
    outgoing.once("upgrade", (_response: IncomingMessage, socket: Duplex, head: Buffer) => {
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    outgoing.once("response", (response: IncomingMessage) => {
      const { statusCode: status = 0, headers } = response;
      text(response).then((body) => resolve({ status, body, requestId: headers["x-request-id"] as string | undefined }), reject);
    });
    outgoing.end();
  }).finally(() => opts.signal.removeEventListener("abort", abort));
}

function answerOf(outgoing: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    outgoing.once("response", resolve);
    // the listener stays: after the answer, an error belongs to its body
    outgoing.on("error", reject);
  });
}
