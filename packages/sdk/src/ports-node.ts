// What only Node has: requests to a guest's server over a Unix socket, and bare connections. Loaded when one is needed.

import { request as httpRequest, type ClientRequest, type IncomingMessage, type RequestOptions } from "node:http";
import { request as httpsRequest } from "node:https";
import { Readable, type Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import type { Target } from "./target.ts";

export type { Duplex } from "node:stream";

/** A refusal: its status and what it says */
export type Refused = { status: number; body: string; requestId: string | undefined };

/** `fetch` over a Unix socket. Statuses without a body have none here either */
export async function unixFetch(socketPath: string, request: Request, path: string, isStream: boolean): Promise<Response> {
  const headers: Record<string, string> = { host: "forkd", ...Object.fromEntries(request.headers) };
  const bytes = request.body === null || isStream ? undefined : new Uint8Array(await request.arrayBuffer());
  const outgoing = httpRequest({ socketPath, path, method: request.method, headers, signal: request.signal });
  const answer = answerOf(outgoing);
  if (request.body === null || bytes !== undefined) outgoing.end(bytes);
  else
    Readable.fromWeb(request.body)
      .on("error", (error) => outgoing.destroy(error))
      .pipe(outgoing);
  const response = await answer;
  const { statusCode: status = 0 } = response;
  const isEmpty = [101, 204, 205, 304].includes(status) || request.method === "HEAD";
  if (isEmpty) response.resume();
  const pairs = response.rawHeaders.flatMap((name, at): [string, string][] =>
    at % 2 === 0 ? [[name, response.rawHeaders[at + 1] ?? ""]] : [],
  );
  return new Response(isEmpty ? null : Readable.toWeb(response), {
    status,
    headers: new Headers(pairs),
  });
}

/** A connection that has been upgraded to the bytes of a guest's server */
export function openConnection(
  target: Target,
  path: string,
  opts: { headers: Record<string, string>; signal: AbortSignal },
): Promise<Duplex | Refused> {
  const url = target.kind === "url" ? new URL(target.url) : undefined;
  const options: RequestOptions & { allowHalfOpen: boolean } = {
    path: (url?.pathname.replace(/\/$/, "") ?? "") + path,
    headers: { host: url?.host ?? "forkd", connection: "Upgrade", upgrade: "tcp", ...opts.headers },
    // a connection of its own, of which each direction ends by itself
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
    // stays: after the answer, an error is that of its body
    outgoing.on("error", reject);
  });
}
