// Transport over Unix sockets, which fetch does not support. Uses node:*, so it is loaded only when a socket is used.

import { lstat } from "node:fs/promises";
import { Agent, request as httpRequest, type ClientRequest, type IncomingMessage } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { dirname } from "node:path";
import { StaleConnection, type Transport, type WireResponse } from "./transport.ts";

/** One pool per socket, shared by all controllers. Node unrefs idle connections, so they do not keep the process alive */
const agents = new Map<string, Agent>();

/** With `uid`, the socket's folder must belong to that user */
export async function unixTransport(socketPath: string, opts: { uid?: number | undefined } = {}): Promise<Transport> {
  if (opts.uid !== undefined) await refuseForeignFolder(dirname(socketPath), opts.uid);
  const agent = agents.get(socketPath) ?? new Agent({ keepAlive: true });
  agents.set(socketPath, agent);
  return ({ method, path, headers, body, signal }) =>
    new Promise<WireResponse>((resolve, reject) => {
      const request = httpRequest({ agent, socketPath, method, path, headers: { host: "forkd", te: "trailers", ...headers }, signal });
      request.once("response", (response) => resolve(wireResponse(request, response)));
      // Stays for the life of the request: an unhandled error after the answer would end the process.
      request.on("error", (error) =>
        reject(isStale(request, error) ? new StaleConnection("The connection was closed.", { cause: error }) : error),
      );
      if (body === undefined || typeof body === "string" || body instanceof Uint8Array) request.end(body);
      else pipeline(Readable.from(body, { objectMode: false }), request).catch(reject);
    });
}

async function refuseForeignFolder(folder: string, uid: number): Promise<void> {
  const info = await lstat(folder);
  if (info.isDirectory() && info.uid === uid && (info.mode & 0o022) === 0) return;
  throw new Error(`${folder} is not a folder that only you can write to, so another user may listen there`);
}

function isStale(request: ClientRequest, error: NodeJS.ErrnoException): boolean {
  return request.reusedSocket && (error.code === "ECONNRESET" || error.code === "EPIPE");
}

function wireResponse(request: ClientRequest, response: IncomingMessage): WireResponse {
  return {
    status: response.statusCode ?? 0,
    header(name) {
      const value = response.headers[name.toLowerCase()];
      return Array.isArray(value) ? value.join(", ") : value;
    },
    text: () => textOf(request, response),
    chunks: () => chunksOf(request, response),
    problem: () => response.trailers["x-forkd-problem"],
    cancel: () => void response.destroy(),
  };
}

function textOf(request: ClientRequest, response: IncomingMessage): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    response.setEncoding("utf8");
    response.on("data", (part: string) => (text += part));
    response.once("error", reject);
    response.once("end", () => {
      // The answer to an upload may arrive before its end: the rest need not be sent.
      if (!request.writableFinished) request.destroy();
      resolve(text);
    });
  });
}

async function* chunksOf(request: ClientRequest, response: IncomingMessage): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) yield new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  } finally {
    if (!request.writableFinished) request.destroy();
  }
}
