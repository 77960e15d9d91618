// Response writer: JSON, streams, progress lines and protocol upgrades.

import { finished, Readable } from "node:stream";
import { takeOver, upgradeRequired, type Takeover } from "./upgrade.ts";
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Progress } from "@forkd/runtime/util/progress";
import type { Problem } from "../api/common.ts";
import type { Answer, Passage } from "./answer.ts";
import type { Exchange } from "./exchange.ts";

const JSON_TYPE = "application/json; charset=utf-8";
const TEXT_TYPE = "text/plain; charset=utf-8";
const BYTES_TYPE = "application/octet-stream";
const PROBLEM_TRAILER = "x-forkd-problem";
const LINES_TYPE = "application/x-ndjson";
/** Unsent bytes above which progress lines are dropped for a slow client; the result is never dropped */
const MAX_WAITING_BYTES = 64 * 1024;

export type SendOptions = {
  /** error trailer of a failed stream, for clients that accept trailers. Otherwise the connection is closed early */
  describe?: (error: unknown) => Problem;
};

/** Rejects only if nothing was sent: the caller can still send an error response */
export async function respond(exchange: Exchange, answer: Answer, opts: SendOptions = {}): Promise<void> {
  const { body, status } = answer;
  if (typeof body === "function") {
    if (status === 101) await upgrade(exchange, body as Takeover);
    else await pass(exchange.response, status, body as Passage);
  } else if (body instanceof Readable) await sendStream(exchange, answer, body, opts);
  else sendWhole(exchange.response, answer);
}

export function wantsLines(accept: string | undefined): boolean {
  return accept !== undefined && accept.toLowerCase().includes(LINES_TYPE);
}

/** Sends the status with the first line: an earlier error is an ordinary response, a later one is the last line */
export async function sendLines(
  exchange: Exchange,
  work: (progress: Progress) => Promise<Answer>,
  describe: (error: unknown) => Problem,
): Promise<void> {
  const stream = new Readable({ read: () => undefined });
  let sent: Promise<void> | undefined;
  let headers: Record<string, string> = {};
  const push = (line: object): void => {
    sent ??= sendStream(exchange, { status: 200, headers: { ...headers, "content-type": LINES_TYPE } }, stream, {});
    if (!stream.destroyed) stream.push(`${JSON.stringify(line)}\n`);
  };
  try {
    const answer = await work((progress) => {
      if (stream.readableLength < MAX_WAITING_BYTES) push({ progress });
    });
    headers = answer.headers ?? {};
    push({ result: answer.body ?? null, status: answer.status });
  } catch (error) {
    if (!sent) throw error;
    push({ error: describe(error) });
  }
  if (!stream.destroyed) stream.push(null);
  await sent;
}

function sendWhole(response: ServerResponse, { status, headers = {}, body }: Answer): void {
  if (body === undefined || body === null) {
    const length = status === 204 || status === 304 || "content-length" in headers ? {} : { "content-length": "0" };
    response.writeHead(status, { ...headers, ...length }).end();
    return;
  }
  const isText = typeof body === "string";
  const bytes = isText || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  const type = isText ? TEXT_TYPE : Buffer.isBuffer(body) ? BYTES_TYPE : JSON_TYPE;
  // HEAD: Content-Length is that of the body; Node omits the body itself
  response.writeHead(status, { "content-type": type, ...headers, "content-length": String(Buffer.byteLength(bytes)) }).end(bytes);
}

/** Relays another server's response */
async function pass(response: ServerResponse, status: number, passage: Passage): Promise<void> {
  response.statusCode = status;
  await passage(response);
}

async function upgrade(exchange: Exchange, takeover: Takeover): Promise<void> {
  const { request, response, controller } = exchange;
  const { upgraded: connection } = request;
  if (!connection) throw upgradeRequired();
  // a half-closed client must not abort an upgraded connection
  exchange.isDetached = true;
  response.statusCode = 101;
  response.detachSocket(connection.socket as Socket);
  await takeOver(connection, takeover, controller);
}

/** Resolves when the head is sent or the response has closed. The body follows at the client's speed */
function sendStream(exchange: Exchange, answer: Answer, stream: Readable, { describe }: SendOptions): Promise<void> {
  const { response, request } = exchange;
  const { status, headers = {} } = answer;
  if (exchange.method === "HEAD") {
    stream.destroy();
    response.writeHead(status, headers).end();
    return Promise.resolve();
  }
  if (describe && /\btrailers\b/i.test(String(request.headers.te))) {
    sendWithTrailer(response, answer, stream, describe);
    return Promise.resolve();
  }
  // not writeHead(): if the stream fails before its first byte, the error is the response
  response.statusCode = status;
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  return new Promise((resolve, reject) => {
    finished(stream, { readable: true, writable: false }, (error) => {
      if (!error) resolve();
      else if (response.headersSent || response.destroyed) {
        response.destroy();
        resolve();
      } else {
        for (const name of Object.keys(headers)) response.removeHeader(name);
        reject(error);
      }
    });
    response.once("close", () => {
      stream.destroy();
      resolve();
    });
    stream.once("data", () => resolve());
    stream.pipe(response);
    if (answer.flush) {
      response.flushHeaders();
      resolve();
    }
  });
}

/** For clients that accept trailers: a failed stream ends cleanly, with the error in the trailer */
function sendWithTrailer(response: ServerResponse, answer: Answer, stream: Readable, describe: (error: unknown) => Problem): void {
  // trailers need chunked encoding, which excludes Content-Length
  const { "content-length": _length, ...headers } = { ...response.getHeaders(), ...answer.headers };
  response.writeHead(answer.status, { ...headers, trailer: PROBLEM_TRAILER });
  response.flushHeaders();
  stream.once("error", (error) => {
    if (response.destroyed) return;
    response.addTrailers({ [PROBLEM_TRAILER]: asciiJson(describe(error)) });
    response.end();
  });
  response.once("close", () => stream.destroy());
  stream.pipe(response);
}

/** JSON with non-ASCII characters escaped, as header values need */
function asciiJson(value: object): string {
  return JSON.stringify(value).replaceAll(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
