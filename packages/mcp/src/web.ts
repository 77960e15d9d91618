// Conversion between node:http and web requests and responses.

import { isIP } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { IncomingMessage, ServerResponse } from "node:http";

const LOOPBACK = ["localhost", "127.0.0.1", "::1"];

export function isLoopback(host: string): boolean {
  return LOOPBACK.includes(host) || (isIP(host) === 4 && host.startsWith("127."));
}

/** DNS rebinding: a web page must not reach this server under a host name that resolves to its address */
export class Guard {
  readonly #names: Set<string>;

  constructor(hosts: readonly string[]) {
    const all = hosts.some(isLoopback) ? [...hosts, ...LOOPBACK] : hosts;
    this.#names = new Set(all.map((host) => host.toLowerCase()));
  }

  /** Why a request is refused */
  refusal({ headers }: IncomingMessage): string | undefined {
    const host = nameOf(`http://${headers.host ?? ""}`);
    if (host === undefined || !this.#names.has(host)) return `Cannot serve this: the request is for the host ${quoted(headers.host)}.`;
    if (headers.origin === undefined) return undefined;
    const origin = nameOf(headers.origin);
    return origin !== undefined && this.#names.has(origin)
      ? undefined
      : `Cannot serve this: the request is from ${quoted(headers.origin)}.`;
  }
}

/** undefined: the body is too long. The rest is read and discarded, because a client whose connection is reset would not see the response */
export function bodyOf(incoming: IncomingMessage, maxBytes: number): Promise<Buffer<ArrayBuffer> | undefined> {
  const parts: Buffer[] = [];
  let room = maxBytes;
  return new Promise((resolve, reject) => {
    incoming.on("data", (part: Buffer) => {
      room -= part.length;
      if (room >= 0) parts.push(part);
      else resolve(undefined);
    });
    incoming.once("end", () => resolve(Buffer.concat(parts)));
    incoming.once("error", reject);
  });
}

export function toRequest(incoming: IncomingMessage, body: Buffer<ArrayBuffer>, signal: AbortSignal): Request {
  const { method = "GET", url = "/", headers } = incoming;
  const list = Object.entries(headers).flatMap(([name, value]) => [value ?? []].flat().map((one): [string, string] => [name, one]));
  return new Request(new URL(url, "http://mcp"), { method, headers: list, body: method === "POST" ? body : null, signal });
}

/** Resolves when everything was sent, or the client disconnected */
export async function writeResponse(response: Response, outgoing: ServerResponse): Promise<void> {
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  if (response.body === null) {
    outgoing.end();
    return;
  }
  outgoing.flushHeaders();
  try {
    await pipeline(Readable.fromWeb(response.body), outgoing);
  } catch (error) {
    if (!outgoing.destroyed) throw error;
  }
}

function nameOf(url: string): string | undefined {
  if (!URL.canParse(url)) return undefined;
  return new URL(url).hostname.replace(/^\[(.*)\]$/, "$1").toLowerCase();
}

function quoted(text: string | undefined): string {
  return JSON.stringify((text ?? "").slice(0, 200));
}
